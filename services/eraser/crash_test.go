package eraser_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// mortal is a log whose user dies at a step: before it is done, or just after, without
// having heard of it. Then it can do nothing more.
type mortal struct {
	Log
	steps atomic.Int64
	after bool
	dead  chan struct{}
}

var errDead = errors.New("dead")

func newMortal(log Log, steps int64, after bool) *mortal {
	m := &mortal{Log: log, after: after, dead: make(chan struct{})}
	m.steps.Store(steps)
	return m
}

// live runs an eraser on a log until it is dead, or has nothing left to do.
func (w *world) live(m *mortal, cfg eraser.Config) {
	w.Helper()
	defer w.erase(m, cfg)()
	hang.Until(w, func() bool {
		select {
		case <-m.dead:
			return true
		default:
			return w.done()
		}
	})
}

// step does one step, if there is life left.
func (m *mortal) step(do func() error) error {
	left := m.steps.Add(-1)
	if left < 0 && (left < -1 || !m.after) {
		if left == -1 {
			close(m.dead)
		}
		return errDead
	}
	err := do()
	if left == -1 {
		close(m.dead)
		return errDead
	}
	return err
}

func (m *mortal) Erase(ctx context.Context, at events.Position) (found bool, err error) {
	err = m.step(func() error { found, err = m.Log.Erase(ctx, at); return err })
	return found, err
}

func (m *mortal) Append(ctx context.Context, a jetlog.Append) (ack jetlog.Ack, err error) {
	err = m.step(func() error { ack, err = m.Log.Append(ctx, a); return err })
	return ack, err
}

func (m *mortal) Settle(ctx context.Context, partition int) error {
	return m.step(func() error { return m.Log.Settle(ctx, partition) })
}

// seeds of a test that has a long form.
func seeds(short, long int) int {
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		return long
	}
	return short
}

// An eraser that dies at random steps, several times over, ends complete, and erases
// nothing else.
func TestAnEraserThatDiesEndsComplete(t *testing.T) {
	t.Parallel()
	for seed := range seeds(12, 300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 7))
			w := newWorld(t, 1+seed%2)
			want := w.scene(rng)
			for range 2 + rng.IntN(6) {
				w.live(newMortal(inOnePiece(w.log), int64(rng.IntN(12)), rng.IntN(2) == 0), eraser.Config{Rate: 10_000})
			}
			w.erase(inOnePiece(w.log), eraser.Config{Rate: 10_000})
			for session, types := range want {
				w.left(session, types...)
			}
			require.Empty(t, holding(t, w.dir, "SECRET"))
			require.NotEmpty(t, holding(t, w.dir, "KEPT"))
		})
	}
}

// scene writes sessions in random order, of which much is to go, and gives what must be
// left of each.
func (w *world) scene(rng *rand.Rand) map[string][]string {
	w.Helper()
	both := []string{events.TypeTurnStarted, events.TypeTurnFinalized}
	want := map[string][]string{
		"plain":    append(slices.Clone(both), both...),
		"redacted": append(slices.Clone(both), events.TypeTurnRedacted, events.TypeTurnRedacted),
		"erased":   {events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt},
		"hers":     {events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt},
		"hers too": {events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt},
	}
	steps := []func(){
		func() { w.turn("plain", "r1", "KEPT"); w.turn("plain", "r2", "KEPT") },
		func() {
			w.turn("redacted", "r0", "KEPT")
			first := w.turn("redacted", "r1", "SECRET")
			w.redact("redacted", w.correct("redacted", "c1", first, "SECRET"))
			w.redact("redacted", w.start("redacted", "r2", "SECRET").ID)
		},
		func() {
			for i := range 3 + rng.IntN(5) {
				w.turn("erased", fmt.Sprint(i), "SECRET")
			}
			w.link("erased", "bob")
			must.Get(w.history.EraseSession(w.Context(), "erased", services.Erasure{}))(w)
		},
		func() {
			w.link("hers", "alice")
			// As a pipeline does, which nobody refuses: alice may be erased by now.
			id := events.TurnID("hers", "r1")
			w.publish(&events.TurnStarted{TurnID: id, SessionID: "hers", RequestID: "r1",
				Question: events.Question{QuestionNeutral: "SECRET"}}, "")
			w.publish(&events.TurnFinalized{TurnID: id, SessionID: "hers",
				Answer: events.Answer{AnswerNeutral: "SECRET"}}, "")
			w.turn("hers too", "r1", "SECRET")
			w.link("hers too", "alice")
		},
		func() {
			must.Get(w.history.EraseIdentity(w.Context(), "alice", services.Erasure{}))(w)
		},
	}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, do := range steps {
		do()
	}
	return want
}

// A tombstone is the same after each step of its erasure.
func TestTheSessionIsTheSameAtEachStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r0", "KEPT")
	first := w.turn("s", "r1", "SECRET")
	w.publish(&events.TurnStarted{TurnID: first, SessionID: "s", RequestID: "r1",
		Question: events.Question{QuestionNeutral: "SECRET, other words"}}, "other")
	w.redact("s", w.correct("s", "c1", first, "SECRET"))
	before := w.state("s")
	for range 6 {
		w.live(newMortal(inOnePiece(w.log), 2, false), eraser.Config{}) // an event, settled
		require.True(t, before.Same(w.state("s")))
	}
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	require.Equal(t, conversation.Redacted, w.state("s").Turn(first).Status)
}
