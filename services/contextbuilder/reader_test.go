package contextbuilder_test

import (
	"context"
	"encoding/json"
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
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

func exchange(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("user: q", i), fmt.Sprint("assistant: a", i))
	}
	return append(out, "user: now")
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
			r := must.Get(builder(log, view).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now",
				IncludePending: true}))(t)
			require.Equal(t, exchange(0, 6), texts(t, r), "seen %d, kept %d", seen, keep)
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
		r := must.Get(builder(log, view).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now",
			MaxMessages: 4, IncludePending: true}))(t)
		require.Equal(t, []string{"user: q0", "assistant: a0", "user: open4", "user: open5", "user: open6",
			"user: open7", "user: now"}, texts(t, r), "kept %d", keep)
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
		r := must.Get(contextbuilder.NewBuilder(reader, contextbuilder.Config{}).Build(t.Context(),
			services.ContextRequest{SessionID: "s", Message: "now"}))(t)
		require.Equal(t, exchange(0, 6), texts(t, r), name)
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
	r := must.Get(contextbuilder.NewBuilder(reader, contextbuilder.Config{}).Build(ctx,
		services.ContextRequest{SessionID: "s", Message: "now"}))(t)
	require.Equal(t, exchange(0, 3), texts(t, r))
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
		b := contextbuilder.NewBuilder(reader, contextbuilder.Config{})
		r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now", KnownSeq: at[5]}))(t)
		require.Equal(t, exchange(0, 6), texts(t, r), "seen %d", seen)
		_, err := b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now"})
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
			b := contextbuilder.NewBuilder(read.New(log,
				read.Config{View: view, Rules: rules}), contextbuilder.Config{})
			r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now"}))(t)
			require.Equal(t, exchange(0, 6), texts(t, r), "%d, then %d", first, second)
		}
	}
}

// Where a call names no window, turns leave a full one in blocks: two of three prompts begin as the one before. Views,
// the log and the past agree on the window, however many turns a view holds, and whether a turn that is never shown is
// among them.
func TestPromptsBeginAsTheLastOneDid(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ask := func(view read.View, req services.ContextRequest) services.Context {
		r := read.New(log, read.Config{Rules: rules, View: view})
		b := contextbuilder.NewBuilder(r, contextbuilder.Config{Blocks: true})
		req.SessionID, req.Message = "s", "now"
		return must.Get(b.Build(t.Context(), req))(t)
	}
	first, same, full := "", 0, 0
	var past [][]string
	var at []events.Position
	for i := range 40 {
		if i == 15 {
			id := events.TurnID("s", "no")
			natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "no",
				Question: events.Question{QuestionNeutral: "refused"}})
			natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
				Answer:   events.Answer{AnswerMessages: json.RawMessage(`[{"role":"assistant","content":""}]`)},
				Metadata: json.RawMessage(`{"finish_reason":"content_filter"}`)})
		}
		at = append(at, logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i)))
		r := ask(nil, services.ContextRequest{})
		shown := texts(t, r)
		require.Equal(t, i+1, r.HistoryTurns+r.DroppedTurns)
		require.Equal(t, exchange(i+1-r.HistoryTurns, i+1), shown)
		if past = append(past, shown); i >= 10 {
			require.LessOrEqual(t, r.HistoryMessages, 20)
			require.GreaterOrEqual(t, r.HistoryMessages, 15)
			full++
			if shown[0] == first {
				same++
			}
		}
		first = shown[0]
		for _, keep := range []int{12, 14, 25} {
			view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at[i].Seq, keep), At: at[i].Seq}
			require.Equal(t, shown, texts(t, ask(view, services.ContextRequest{})), "turn %d, kept %d", i, keep)
		}
	}
	require.GreaterOrEqual(t, 3*same, 2*full-3, "%d of %d", same, full)
	for i, p := range at {
		require.Equal(t, past[i], texts(t, ask(nil, services.ContextRequest{AsOf: &services.AsOf{Position: &p}})))
	}
	for _, exact := range []services.ContextRequest{{MaxMessages: 20}, {MaxTokens: 1 << 20}} {
		require.Equal(t, exchange(30, 40), texts(t, ask(nil, exact)))
	}
}
