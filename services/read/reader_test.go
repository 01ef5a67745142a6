package read_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

// said is what a reading has of answered turns, oldest first.
func said(r services.Reading) (out []string) {
	for _, t := range r.State.Turns {
		if t.Answer != nil && r.State.Shown(t) {
			out = append(out, t.Question.QuestionNeutral, t.Answer.AnswerNeutral)
		}
	}
	return out
}

func exchanges(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("q", i), fmt.Sprint("a", i))
	}
	return out
}

// A view is behind: what it has not seen comes from the log, be it a little or all, of
// a session that it holds whole or of which it has dropped turns.
//
//conformance:i16
func TestAViewThatIsBehindIsCompletedFromTheLog(t *testing.T) {
	t.Parallel()
	log, at := logtest.Turns(t, 6)
	// A late duplicate of a turn that the view has dropped must not come back as a new one.
	natstest.Append(t, log, &events.TurnStarted{TurnID: events.TurnID("s", "0"), SessionID: "s", RequestID: "0",
		Question: events.Question{QuestionNeutral: "q0 again"}})
	for seen := range 6 {
		for _, keep := range []int{1, 2, math.MaxInt32} {
			view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at[seen], keep), At: at[seen]}
			r := read.New(log, read.Config{Rules: rules, View: view})
			got := must.Get(r.Read(t.Context(), services.Ask{SessionID: "s", Shown: 22, Pending: true}))(t)
			require.Equal(t, exchanges(6), said(got), "seen %d, kept %d", seen, keep)
			require.NotZero(t, view.Asked)
		}
	}
}

// Many questions came after the last answer: a view that holds nothing but them does not
// hide the last complete pair.
func TestTheLastPairIsThereHoweverManyQuestionsCameAfterIt(t *testing.T) {
	t.Parallel()
	log, _ := logtest.Turns(t, 1)
	var at uint64
	for i := range 8 {
		request := fmt.Sprint("open", i)
		at = natstest.Append(t, log, &events.TurnStarted{TurnID: events.TurnID("s", request), SessionID: "s",
			RequestID: request, Question: events.Question{QuestionNeutral: request}}).Seq
	}
	for _, keep := range []int{4, 6, math.MaxInt32} {
		view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at, keep), At: at}
		r := read.New(log, read.Config{Rules: rules, View: view})
		got := must.Get(r.Read(t.Context(), services.Ask{SessionID: "s", Shown: 4, Pending: true}))(t)
		require.Equal(t, exchanges(1), said(got), "kept %d", keep)
		newest := got.State.Turns[len(got.State.Turns)-1]
		require.Equal(t, "open7", newest.Question.QuestionNeutral)
	}
}

// The audit tables answer for a session that has left the recent view, where they hold
// all that the log does of it; else the log answers.
func TestTheArchiveAnswersOnlyWhereItHasCaughtUp(t *testing.T) {
	t.Parallel()
	log, at := logtest.Turns(t, 6)
	for name, archive := range map[string]*viewtest.Still{
		"caught up":       {State: viewtest.Folded(t, log, rules, "s", at[5], math.MaxInt32), At: at[5]},
		"behind":          {State: viewtest.Folded(t, log, rules, "s", at[3], math.MaxInt32), At: at[3]},
		"without it":      {},
		"with part of it": {State: viewtest.Folded(t, log, rules, "s", at[5], 1), At: at[5]},
	} {
		reader := read.New(log, read.Config{Rules: rules, View: &viewtest.Still{},
			Archive: archive, Deadline: time.Second})
		r := must.Get(reader.Read(t.Context(), services.Ask{SessionID: "s", Shown: 12}))(t)
		require.Equal(t, exchanges(6), said(r), name)
		require.Equal(t, 1, archive.Asked, name)
		want := services.FromLog
		if name == "caught up" {
			want = services.FromView
		}
		require.Equal(t, want, r.Source, name)
	}
}

// stuck is an archive that neither answers nor fails.
type stuck struct{}

func (stuck) SessionTurns(ctx context.Context, _ string, _ int) (*session.State, events.Position, error) {
	<-ctx.Done()
	return nil, events.Position{}, ctx.Err()
}

// An archive that does not answer holds no read up for long: the log has it all.
func TestAnArchiveThatDoesNotAnswerIsLeft(t *testing.T) {
	t.Parallel()
	log, _ := logtest.Turns(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	reader := read.New(log, read.Config{Rules: rules, View: &viewtest.Still{}, Archive: stuck{}})
	require.Equal(t, exchanges(3), said(must.Get(reader.Read(ctx, services.Ask{SessionID: "s", Shown: 12}))(t)))
}

// endless is a log that must not be asked where it ends.
type endless struct{ *jetlog.Log }

func (endless) Head(context.Context, int) (events.Position, error) {
	return events.Position{}, errors.New("the log was asked for its end")
}

// Who has just written knows how far a reading must go: the log's end is not asked for, and a view that has not
// come so far is completed as ever.
func TestAKnownPlaceStandsForTheLogsEnd(t *testing.T) {
	t.Parallel()
	log, at := logtest.Turns(t, 6)
	for seen := range 6 {
		view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at[seen], math.MaxInt32), At: at[seen]}
		reader := read.New(endless{log}, read.Config{Rules: rules, View: view})
		r := must.Get(reader.Read(t.Context(), services.Ask{SessionID: "s", Shown: 12, KnownSeq: at[5]}))(t)
		require.Equal(t, exchanges(6), said(r), "seen %d", seen)
		_, err := reader.Read(t.Context(), services.Ask{SessionID: "s", Shown: 12})
		require.ErrorContains(t, err, "asked for its end", "what is acknowledged is not known")
	}
}

// leaving is a view whose reader goes while it is asked.
type leaving func()

func (leaving) Wait(ctx context.Context, _ events.Position) error { return ctx.Err() }

func (l leaving) Load(ctx context.Context, _ string, _, _ int) (recent.Snapshot, error) {
	l()
	return recent.Snapshot{}, ctx.Err()
}

// A reader that goes says nothing about the view: an operator would look for its fault.
func TestAReaderThatGoesIsNoFaultOfTheView(t *testing.T) {
	t.Parallel()
	log, _ := logtest.Turns(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var told strings.Builder
	r := read.New(log, read.Config{View: leaving(cancel), Rules: rules,
		Logger: slog.New(slog.NewTextHandler(&told, nil))})
	must.Fail(r.Read(ctx, services.Ask{SessionID: "s", Shown: 2}))(t, context.Canceled)
	require.Empty(t, told.String())
}

// failingOver is a view in a store that fails over to a replica which is behind: each load is of the next view, and the
// last one stays.
type failingOver struct{ views []*viewtest.Still }

func (f *failingOver) Wait(ctx context.Context, at events.Position) error {
	return f.views[0].Wait(ctx, at)
}

func (f *failingOver) Load(ctx context.Context, id string, partition, shown int) (recent.Snapshot, error) {
	now := f.views[0]
	if len(f.views) > 1 {
		f.views = f.views[1:]
	}
	return now.Load(ctx, id, partition, shown)
}

// A view that is further behind when it is asked again, since its store failed over, hides no turn that was
// acknowledged: what the log was read for begins behind the first place.
func TestAViewThatGoesBackHidesNoTurn(t *testing.T) {
	t.Parallel()
	log, at := logtest.Turns(t, 6)
	for first := 1; first < 5; first++ {
		for second := range first {
			view := &failingOver{}
			for _, seen := range []int{first, second} {
				state := viewtest.Folded(t, log, rules, "s", at[seen], math.MaxInt32)
				view.views = append(view.views, &viewtest.Still{State: state, At: at[seen]})
			}
			reader := read.New(log, read.Config{View: view, Rules: rules})
			r := must.Get(reader.Read(t.Context(), services.Ask{SessionID: "s", Shown: 12}))(t)
			require.Equal(t, exchanges(6), said(r), "%d, then %d", first, second)
		}
	}
}
