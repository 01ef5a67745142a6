package indextest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// silence is how long a session of the property may be silent. The property's steps take longer at random, so that
// links find boundaries, which redactions, prunes and kinds move.
const silence = 30 * time.Millisecond

// Property feeds random logs by processes that are killed, taken over, and whose writes come late or not at all, with
// rebuilds in between. In the end the index, searches and the log agree, and so do a rebuild and the index. open
// returns a store that is empty and is used by nothing else.
func Property(t *testing.T, logs int, open func(t testing.TB) index.Store) {
	viewtest.Checks(t, logs)
	rapid.Check(t, func(rt *rapid.T) {
		w := NewWorld(t, open(t), rapid.IntRange(1, 2).Draw(rt, "partitions"))
		w.Rules.SessionTTL = silence
		f := &feeders{rt: rt, t: t, World: w, dice: rapid.Uint64().Draw(rt, "dice")}
		for range rapid.IntRange(40, 120).Draw(rt, "steps") {
			f.step()
		}
		for len(f.processes) > 0 {
			f.kill(0)
		}
		v := w.Open(t)
		stop := w.Feed(t, v)
		w.CaughtUp(t, v)
		f.release() // after the last takeover
		w.Reached(t, v)
		require.NoError(rt, v.Sweep(t.Context()))
		w.Agree(rt, v, sessions()...)
		w.Rebuild(t, v)
		w.CaughtUp(t, v)
		w.Agree(rt, v, sessions()...)
		stop()
	})
}

// feeders are the processes that feed an index in the property.
type feeders struct {
	rt *rapid.T
	t  testing.TB
	*World
	dice      uint64
	processes []*process
	// stores are those of all processes, with the writes that have not come yet.
	stores  []*lossy
	started int
}

type process struct {
	stop  func()
	store *lossy
}

// step does one thing: it appends facts, or something happens to the processes.
func (f *feeders) step() {
	switch f.draw(29, "step") {
	case 0, 1:
		f.start()
	case 2:
		if n := len(f.processes); n > 0 {
			f.kill(f.draw(n-1, "killed"))
		}
	case 3:
		f.release()
	case 4:
		if f.draw(2, "rebuild") == 0 {
			f.Rebuild(f.t, f.Open(f.t))
		}
	case 5:
		f.pass(2 * silence)
	case 6:
		f.pass(10 * time.Millisecond)
	case 7, 8, 9:
		f.prune()
	case 10, 11:
		f.Append(f.t, Linked(f.session(), "ada"))
	case 12, 13, 14, 15, 16, 17:
		request := fmt.Sprint("r", f.draw(4, "request"))
		f.Append(f.t, turntest.Turn(f.session(), request, "a question of "+request, "an answer")...)
	default:
		f.Append(f.t, viewtest.DrawFact(f.rt))
	}
}

// session draws one of few sessions, so that more happens to each.
func (f *feeders) session() string { return viewtest.Session(f.draw(2, "session")) }

// prune prunes a finalized turn, if there is one.
func (f *feeders) prune() {
	s := natstest.Fold(f.t, f.Log, f.session(), f.Rules)
	final := slices.DeleteFunc(slices.Clone(s.Turns), func(t *session.Turn) bool {
		return t.Status != session.Finalized
	})
	if len(final) > 0 {
		of := final[f.draw(len(final)-1, "turn")].ID
		f.Append(f.t, viewtest.DrawPrune(f.rt, s, f.Log.Session(f.t.Context(), s.SessionID, 0, 1<<40), of)...)
	}
}

// draw draws a number from 0 to most.
func (f *feeders) draw(most int, what string) int { return rapid.IntRange(0, most).Draw(f.rt, what) }

// pass lets time pass.
func (*feeders) pass(d time.Duration) { <-time.After(d) }

// start starts a process, beside others: two that feed the same partitions take them over from each other.
func (f *feeders) start() {
	if len(f.processes) == 2 {
		return
	}
	f.started++
	store := &lossy{
		Objects: f.Store.Objects, ctx: f.t.Context(),
		rng: rand.New(rand.NewPCG(f.dice, uint64(f.started))),
	}
	v := f.Open(f.t, func(c *index.Config) { c.Store.Objects = store })
	f.processes = append(f.processes, &process{f.Feed(f.t, v), store})
	f.stores = append(f.stores, store)
}

// kill ends a process at whatever step it is: no call of it reaches the store any more, but those that are under way.
func (f *feeders) kill(i int) {
	p := f.processes[i]
	p.store.die()
	p.stop()
	f.processes = append(f.processes[:i:i], f.processes[i+1:]...)
}

// release lets all writes come that were held back.
func (f *feeders) release() {
	for _, s := range f.stores {
		s.release()
	}
}

var errLost = projections.Unavailable(errors.New("the answer was lost"))

// lossy is the store as one process sees it: some writes are lost, some answers are, and some writes come late.
type lossy struct {
	index.Objects
	ctx  context.Context
	mu   sync.Mutex
	rng  *rand.Rand
	dead bool
	held []func() error
}

func (l *lossy) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *lossy) release() {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	for _, write := range held {
		_ = write() // its collection may be gone
	}
}

// write does a write, or loses it or its answer, or holds it back.
func (l *lossy) write(write func(context.Context) error) error {
	l.mu.Lock()
	dice := l.rng.IntN(12)
	switch {
	case l.dead, dice == 0:
		l.mu.Unlock()
		return errLost
	case dice == 1:
		l.held = append(l.held, func() error { return write(l.ctx) })
		l.mu.Unlock()
		return errLost
	}
	l.mu.Unlock()
	err := write(l.ctx)
	if dice == 2 {
		err = errLost
	}
	return err
}

// Put implements index.Objects.
func (l *lossy) Put(_ context.Context, collection string, objects []index.Object) error {
	return l.write(func(ctx context.Context) error { return l.Objects.Put(ctx, collection, objects) })
}

// Delete implements index.Objects.
func (l *lossy) Delete(_ context.Context, collection string, ids []uuid.UUID) error {
	return l.write(func(ctx context.Context) error { return l.Objects.Delete(ctx, collection, ids) })
}

// sessions are those of a random log.
func sessions() (out []string) {
	for n := range viewtest.Sessions {
		out = append(out, viewtest.Session(n))
	}
	return out
}
