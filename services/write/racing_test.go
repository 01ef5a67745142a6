package write_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
)

// racers are processes and raw publishers that write starts, finals and whole turns of the same requests.
type racers struct {
	log      *jetlog.Log
	services []*write.Service

	mu    sync.Mutex
	shown map[string]string // the answers that callers were shown, by session and request
	err   error
}

// TestWholeTurnsRaceStartsAndFinals: what counts is the first in the log, case by case, and a caller that was told that
// its turn has an answer was shown the one that stands.
func TestWholeTurnsRaceStartsAndFinals(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	r := &racers{log: log, services: []*write.Service{run(t, log), run(t, log)}, shown: map[string]string{}}
	var all errgroup.Group
	for w := range 6 {
		rng := rand.New(rand.NewPCG(uint64(w), 39))
		all.Go(func() error {
			for n := range 150 {
				if err := r.one(t.Context(), rng, fmt.Sprint("a", w, "-", n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.NoError(t, r.err)
	kinds := map[string]int{}
	for n := range 4 {
		r.judge(t, fmt.Sprint("s", n), kinds)
	}
	for _, each := range []string{
		"started by a start", "recorded by a whole turn", "answered by a final",
		"duplicate by a start", "duplicate by a whole turn", "duplicate by a final", "second_start by a start",
		"second_start by a whole turn", "second_final by a final", "turn_not_started by a final",
	} {
		require.NotZero(t, kinds[each], "%s: %v", each, kinds)
	}
}

// one writes something of a request, by a process or as a raw publisher beyond any window of duplicates.
func (r *racers) one(ctx context.Context, rng *rand.Rand, answer string) error {
	id, request := fmt.Sprint("s", rng.IntN(4)), fmt.Sprint("r", rng.IntN(40))
	question := fmt.Sprint("q", rng.IntN(3)/2) // of three, two are the same
	if rng.IntN(3) == 0 {
		answer = "usual"
	}
	switch k := rng.IntN(6); k {
	case 0, 1, 2:
		s, c := r.services[rng.IntN(2)], decide.Start{
			SessionID: id, RequestID: request, Question: events.Question{QuestionNeutral: question},
		}
		if k > 0 {
			c.Answer = &events.Answer{AnswerNeutral: answer}
		}
		turn, err := s.StartTurn(ctx, c)
		if err == nil && k > 0 {
			r.show(id+" "+request, turn.Answer, !turn.Duplicate && turn.Answer.AnswerNeutral != answer)
		}
		return err
	case 3:
		return r.publish(ctx, turntest.Started(id, request, question), rng)
	case 4:
		return r.publish(ctx, turntest.Finalized(id, request, answer), rng)
	default:
		return r.publish(ctx, turntest.Recorded(id, request, question, answer), rng)
	}
}

func (r *racers) publish(ctx context.Context, f events.Fact, rng *rand.Rand) error {
	_, err := r.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}, Salt: fmt.Sprint(rng.Uint64())})
	return err
}

// show notes the answer that a caller of a whole turn was shown.
func (r *racers) show(turn string, a *events.Answer, wrong bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.shown[turn]
	if wrong || known && before != a.AnswerNeutral {
		r.err = fmt.Errorf("turn %s was answered %q, then %q", turn, before, a.AnswerNeutral)
	}
	r.shown[turn] = a.AnswerNeutral
}

// judge folds a session, and compares what each event did with the rules as they stand in docs/contract.md.
func (r *racers) judge(t *testing.T, id string, kinds map[string]int) {
	t.Helper()
	type turn struct{ question, answer string }
	turns, state := map[string]*turn{}, session.New(id, session.Rules{})
	again := func(same bool, otherwise string) string {
		if same {
			return "duplicate"
		}
		return otherwise
	}
	for e, err := range r.log.Session(t.Context(), id, 0, math.MaxUint64) {
		require.NoError(t, err)
		texts, key := events.TextsOf(e.Fact), events.NamesOf(e.Fact).TurnID.String()
		is, want, by := turns[key], "", ""
		switch {
		case texts.Question == nil:
			by = "a final"
			switch {
			case is == nil:
				want = session.CodeTurnNotStarted
			case is.answer == "":
				want, is.answer = "answered", texts.Answer.AnswerNeutral
			default:
				want = again(is.answer == texts.Answer.AnswerNeutral, session.CodeSecondFinal)
			}
		case is != nil:
			want = again(is.question == texts.Question.QuestionNeutral, session.CodeSecondStart)
		default:
			want, turns[key] = "started", &turn{question: texts.Question.QuestionNeutral}
			if texts.Answer != nil {
				want, turns[key].answer = "recorded", texts.Answer.AnswerNeutral
			}
		}
		if texts.Question != nil {
			if by = "a start"; texts.Answer != nil {
				by = "a whole turn"
			}
		}
		c := state.Fold(e)
		got := c.Kind.String()
		if c.Reason != "" {
			got = c.Reason
		}
		require.Equal(t, want, got, "event %d by %s", e.Position.Seq, by)
		kinds[want+" by "+by]++
	}
	for _, is := range state.Turns {
		if shown, told := r.shown[id+" "+is.RequestID]; told {
			require.NotNil(t, is.Answer, "an acknowledged answer is lost")
			require.Equal(t, shown, is.Answer.AnswerNeutral)
		}
	}
}
