package eraser_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
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
		func() { must.Get(w.history.EraseIdentity(w.Context(), "alice", services.Erasure{}))(w) },
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
	require.Equal(t, session.Redacted, w.state("s").Turn(first).Status)
}

// On three replicas a text leaves the blocks of every node. The Raft logs the server never
// overwrites: it drops their files behind a snapshot, which the long form waits for while
// the stream is written to.
func TestNoNodeOfAClusterKeepsAnErasedText(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	w := newWorldOn(t, c.Log(t, 1), "")
	w.turn("s", "r0", "KEPT")
	turn := w.turn("s", "r1", "SECRET-A")
	w.turn("t", "r1", "SECRET-B")
	w.link("t", "alice")
	var dirs []string
	for _, s := range c.Servers {
		dirs = append(dirs, s.StoreDir())
	}
	for _, secret := range []string{"KEPT", "SECRET-A", "SECRET-B"} {
		for i, dir := range dirs {
			hang.Until(t, func() bool { return len(holding(t, dir, secret)) > 0 },
				"the search finds what there is on node %d", i)
		}
	}
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.redact("s", turn)
	must.Get(w.history.EraseSession(t.Context(), "t", services.Erasure{Reason: "asked to"}))(t)
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	w.left("t", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
	for i, dir := range dirs {
		for _, secret := range []string{"SECRET-A", "SECRET-B"} {
			hang.Until(t, func() bool {
				return len(natstest.Holding(t, secret, []string{dir}, raftLogs)) == 0
			}, "node %d", i)
		}
		require.NotEmpty(t, natstest.Holding(t, "KEPT", []string{dir}, raftLogs))
	}
	if seeds(0, 1) == 0 {
		return
	}
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; len(natstest.Holding(t, "SECRET", dirs)) > 0; i++ {
		require.Less(t, time.Since(began), 10*time.Minute, "%v", natstest.Holding(t, "SECRET", dirs))
		w.turn("more", fmt.Sprint(i), strings.Repeat("more ", 20_000))
		<-tick.C
	}
	t.Logf("the Raft logs held the text for %s", time.Since(began).Round(time.Second))
}

// raftLogs is the folder of a server's Raft logs.
const raftLogs = "_js_"

// However much is erased while a view is down, one asks for it, and no process shows a lag.
//
//conformance:l12
func TestOneWaitsForAViewThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	view := &slow{place: place{name: "view", all: true}, answer: make(chan struct{})}
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Places: []eraser.Place{view}})
	const sessions = 10
	var receipts []string
	for i := range sessions {
		closed, redacted := fmt.Sprint("closed-", i), fmt.Sprint("redacted-", i)
		w.turn(closed, "r1", "text")
		id := must.Get(w.history.EraseSession(t.Context(), closed, services.Erasure{}))(t)
		redaction := w.redact(redacted, w.turn(redacted, "r1", "text"))
		receipts = append(receipts, id, events.Position{Seq: redaction.Redacted}.String())
	}
	for i := range sessions {
		w.left(fmt.Sprint("closed-", i), events.TypeSessionErased, events.TypeErasureReceipt)
		w.left(fmt.Sprint("redacted-", i), events.TypeTurnRedacted)
	}
	require.Equal(t, int64(1), view.most.Load())

	// Another process would take the work over. It shows how far this one has looked, though nothing is complete.
	standby := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules})
	head := must.Get(w.log.Head(t.Context(), 0))(t)
	hang.Until(t, func() bool {
		at, err := standby.Applied(t.Context(), 0)
		return err == nil && at.Seq >= head.Seq
	})
	require.Less(t, must.Get(standby.Resume(t.Context(), 0))(t).Seq, head.Seq)
	close(view.answer)
	for _, id := range receipts {
		hang.Until(t, func() bool {
			untimed := func(p services.ReceiptPlace) bool { return p.At.IsZero() }
			return !slices.ContainsFunc(w.receipt(id, view).Places, untimed)
		})
	}
}

// A process may read a view of its own, which no eraser knows.
func TestAReceiptOfAnIdentityTellsOfAViewThatNoEraserKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.turn("s", "r1", "text")
	w.link("s", "alice")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	id := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
	own := &place{name: "own"}
	receipt := w.asking(id, own)
	hang.Until(t, func() bool { return receipt().Places[0].Done })
	require.False(t, receipt().Complete(), "it has yet to follow")
	own.at = map[int]uint64{}
	for k := range w.log.Partitions() {
		own.at[k] = must.Get(w.log.Head(t.Context(), k))(t).Seq
	}
	w.turn("other", "r1", "text")
	require.True(t, receipt().Complete(), "what others write since is nothing to it")
}
