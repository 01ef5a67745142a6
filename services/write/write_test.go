package write_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

var policy = decide.Policy{MetadataKeys: []string{"channel", "locale"}}

// run starts a service, as a process of its own would have it.
func run(t testing.TB, log *jetlog.Log) *write.Service { return runOn(t, log) }

// whole is a log of one piece, as tests wrap it.
type whole interface {
	write.Writer
	write.Reader
	write.Glance
	write.TailReader
}

func runOn(t testing.TB, log whole) *write.Service {
	t.Helper()
	return runWith(t, log, write.Config{Policy: policy, Rules: session.Rules{SessionTTL: 24 * time.Hour}})
}

func runWith(t testing.TB, log whole, cfg write.Config) *write.Service {
	t.Helper()
	s := write.New(write.Log{Writer: log, Reader: log, Glance: log, TailReader: log}, cfg)
	natstest.Run(t, s.Run)
	return s
}

func start(session, request string) decide.Start {
	return decide.Start{SessionID: session, RequestID: request, Question: events.Question{QuestionNeutral: "q " +
		request}}
}

func finalize(session, request string) decide.Finalize {
	return decide.Finalize{SessionID: session, TurnID: events.TurnID(session, request),
		Answer: events.Answer{AnswerNeutral: "a " + request}}
}

//conformance:h7 h19
func TestTheSameRequestIsOneTurn(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	a, b := run(t, log), run(t, log)
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s := a
			if i%2 == 0 {
				s = b
			}
			turn, err := s.StartTurn(context.WithoutCancel(t.Context()), start("s", "r"))
			if err != nil {
				t.Error(err)
				return
			}
			if !turn.Duplicate {
				fresh.Add(1)
			}
			if turn.ID != events.TurnID("s", "r") || turn.Question.QuestionNeutral != "q r" || turn.Position.Seq != 1 {
				t.Errorf("turn %+v", turn)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, head(t, log))
	require.EqualValues(t, 1, fresh.Load())
}

//conformance:h10
func TestConcurrentStartsOfTwoProcessesAllCount(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	var wg sync.WaitGroup
	for p, s := range []*write.Service{run(t, log), run(t, log)} {
		for i := range 100 {
			wg.Go(func() {
				turn, err := s.StartTurn(context.WithoutCancel(t.Context()), start("s", fmt.Sprint(p, "-", i)))
				if err != nil || turn.Duplicate {
					t.Error(err, turn.Duplicate)
				}
			})
		}
	}
	wg.Wait()
	st := natstest.Fold(t, log, "s", session.Rules{})
	require.Len(t, st.Turns, 200)
}

//conformance:h35 h52
func TestOneOfTwoIdentitiesWins(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	processes := []*write.Service{run(t, log), run(t, log)}
	for round := range 20 {
		sessionID := fmt.Sprint("s", round)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i, s := range processes {
			wg.Go(func() {
				c := start(sessionID, fmt.Sprint("r", i))
				c.IdentityID = fmt.Sprint("i", i)
				_, err := s.StartTurn(context.WithoutCancel(t.Context()), c)
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, decide.ErrLinkedElsewhere):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, won.Load())
		require.Len(t, natstest.Fold(t, log, sessionID, session.Rules{}).Turns, 1)
	}
}

// Two processes say of one turn what each has from its caller: both are told the question and the answer that stand.
func TestTheFirstQuestionAndTheFirstAnswerStand(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	processes := []*write.Service{run(t, log), run(t, log)}
	atOnce := func(does func(s *write.Service, own string) (services.Turn, error)) (told [2]services.Turn) {
		var all sync.WaitGroup
		for i, s := range processes {
			all.Go(func() {
				var err error
				if told[i], err = does(s, fmt.Sprint(" of ", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.NotEqual(t, told[0].Duplicate, told[1].Duplicate)
		return told
	}
	for round := range 20 {
		session := fmt.Sprint("s", round)
		asked := atOnce(func(s *write.Service, own string) (services.Turn, error) {
			c := start(session, "r")
			c.Question.QuestionNeutral += own
			return s.StartTurn(context.WithoutCancel(t.Context()), c)
		})
		answered := atOnce(func(s *write.Service, own string) (services.Turn, error) {
			c := finalize(session, "r")
			c.Answer.AnswerNeutral += own
			return s.FinalizeTurn(context.WithoutCancel(t.Context()), c)
		})
		stands := must.Get(run(t, log).FinalizeTurn(t.Context(), finalize(session, "r")))(t)
		for i := range processes {
			require.Equal(t, stands.Question.QuestionNeutral, asked[i].Question.QuestionNeutral)
			require.Equal(t, stands.Question.QuestionNeutral, answered[i].Question.QuestionNeutral)
			require.Equal(t, stands.Answer.AnswerNeutral, answered[i].Answer.AnswerNeutral)
		}
	}
}

//conformance:h14 h46 h47
func TestAWholeTurn(t *testing.T) {
	t.Parallel()
	s := run(t, natstest.Log(t, 1))
	ctx := t.Context()
	must.Fail(s.FinalizeTurn(ctx, finalize("s", "r")))(t, decide.ErrTurnNotStarted)
	c := start("s", "r")
	c.Question.Metadata = []byte(`{"channel":"web","secret":1}`)
	turn := must.Get(s.StartTurn(ctx, c))(t)
	require.Equal(t, []string{"secret"}, turn.DroppedMetadata)
	require.JSONEq(t, `{"channel":"web"}`, string(turn.Metadata()))
	turn = must.Get(s.FinalizeTurn(ctx, finalize("s", "r")))(t)
	require.Equal(t, "q r", turn.Question.QuestionNeutral)
	require.Equal(t, "a r", turn.Answer.AnswerNeutral)
	other := finalize("s", "r")
	other.Answer.AnswerNeutral = "another"
	turn = must.Get(s.FinalizeTurn(ctx, other))(t)
	require.True(t, turn.Duplicate)
	require.Equal(t, "a r", turn.Answer.AnswerNeutral)
	text := "better"
	corrected := must.Get(s.CorrectTurn(ctx, decide.Correct{SessionID: "s", RequestID: "c", TurnID: turn.ID,
		AnswerNeutral: &text}))(t)
	require.Equal(t, 2, corrected.Version)
	require.Equal(t, "q r", corrected.Question.QuestionNeutral)
	require.Equal(t, "better", corrected.Answer.AnswerNeutral)
	again := must.Get(s.CorrectTurn(ctx, decide.Correct{SessionID: "s", RequestID: "c", TurnID: turn.ID,
		AnswerNeutral: &text}))(t)
	require.True(t, again.Duplicate)
	gone := must.Get(s.RedactTurn(ctx, "s", decide.Redact{TurnID: turn.ID}))(t)
	require.Equal(t, session.Redacted, gone.Status)
	require.Nil(t, gone.Question)
	late := must.Get(s.StartTurn(ctx, start("s", "r")))(t)
	require.True(t, late.Duplicate)
	require.Equal(t, session.Redacted, late.Status)
	require.Nil(t, late.Question)
	reset := must.Get(s.ResetSession(ctx, "s", ""))(t)
	require.False(t, reset.Duplicate)
	reset = must.Get(s.ResetSession(ctx, "s", ""))(t)
	require.True(t, reset.Duplicate)
}

// A final without a start stands in the server's window of duplicates; it must not
// swallow the right one that follows.
func TestAnAnomalyDoesNotSwallowTheRightEvent(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	f := &events.TurnFinalized{TurnID: events.TurnID("s", "r"), SessionID: "s",
		Answer: events.Answer{AnswerNeutral: "foreign"}}
	must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
	must.Get(s.StartTurn(t.Context(), start("s", "r")))(t)
	turn := must.Get(s.FinalizeTurn(t.Context(), finalize("s", "r")))(t)
	require.False(t, turn.Duplicate)
	require.Equal(t, "a r", turn.Answer.AnswerNeutral)
}

// TestWhatOneProcessAcknowledgedTheNextSees has the second process answer before its
// tail has brought what the first wrote.
//
//conformance:i16 h33
func TestWhatOneProcessAcknowledgedTheNextSees(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	a, b := run(t, log), run(t, log)
	ctx := t.Context()
	for _, s := range []*write.Service{a, b} {
		must.Get(s.StartTurn(ctx, start("s", "first")))(t)
	}
	for i := range 300 {
		request := fmt.Sprint(i)
		id := events.TurnID("s", request)
		must.Get(a.StartTurn(ctx, start("s", request)))(t)
		must.Get(b.FinalizeTurn(ctx, finalize("s", request)))(t)
		again := must.Get(a.StartTurn(ctx, start("s", request)))(t)
		require.Equal(t, session.Finalized, again.Status)
		words := "better"
		corrected, err := a.CorrectTurn(ctx, decide.Correct{SessionID: "s", TurnID: id, RequestID: "c" + request,
			AnswerNeutral: &words})
		require.NoError(t, err)
		must.Fail(b.CorrectTurn(ctx, decide.Correct{SessionID: "s", TurnID: id, RequestID: "d" + request,
			AnswerNeutral: &words}))(t, decide.ErrTurnReplaced)
		must.Get(b.RedactTurn(ctx, "s", decide.Redact{TurnID: corrected.ID}))(t)
		again = must.Get(a.StartTurn(ctx, start("s", request)))(t)
		require.Equal(t, session.Redacted, again.Status)
		require.Nil(t, again.Question)
	}
}

// TestResetGoesBehindWhatAnotherProcessAcknowledged holds that a reset is not taken
// for an earlier one that it did not know of.
func TestResetGoesBehindWhatAnotherProcessAcknowledged(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	a, b := run(t, log), run(t, log)
	ctx := t.Context()
	for _, s := range []*write.Service{a, b} {
		must.Get(s.StartTurn(ctx, start("s", "first")))(t)
	}
	for i := range 200 {
		must.Get(a.ResetSession(ctx, "s", ""))(t)
		turn := must.Get(a.StartTurn(ctx, start("s", fmt.Sprint(i))))(t)
		reset := must.Get(b.ResetSession(ctx, "s", ""))(t)
		require.Greater(t, reset.ResetAt, turn.Position.Seq)
		must.Get(b.StartTurn(ctx, start("s", fmt.Sprint("b", i))))(t)
	}
}

//conformance:h49 h50
func TestStartThatComesAgainWithAnIdentityIsADuplicate(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	must.Get(s.StartTurn(t.Context(), start("s", "r")))(t)
	again := start("s", "r")
	again.IdentityID = "ada"
	turn := must.Get(s.StartTurn(t.Context(), again))(t)
	require.True(t, turn.Duplicate)
	require.Equal(t, "ada", turn.IdentityID)
	require.EqualValues(t, 2, turn.Position.Seq)
}
