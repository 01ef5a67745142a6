package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// rebuildable is a view that can be rebuilt.
type rebuildable interface {
	projections.View
	projections.Rebuildable
}

// begin begins a rebuild in batches of so many events.
func begin(ctx context.Context, log *jetlog.Log, v rebuildable, batch int) (*rebuild.Rebuild, error) {
	return rebuild.Begin(ctx, log, v, v, rebuild.Config{Rules: rules, Feeding: runner.Feeding{MaxBatch: batch}})
}

func rebuilt(t testing.TB, log *jetlog.Log, v rebuildable) error {
	t.Helper()
	r, err := begin(t.Context(), log, v, 100)
	if err != nil {
		return err
	}
	return r.Run(t.Context())
}

func number(t testing.TB, v projections.View) uint64 {
	t.Helper()
	return must.Get(v.Served(t.Context()))(t).Generation
}

// Rebuilds go on beside writes, reads and the live runner: no read fails, none is older than the one before, and what
// is served at the end is what the log says.
func TestRebuildUnderLoad(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		const sessions = 6
		log, v, _ := fed(t, open, 2, sessions, 12)
		load, stop := context.WithCancel(t.Context())
		defer stop()
		var g errgroup.Group
		for n := range sessions {
			g.Go(func() error {
				for i := 12; load.Err() == nil; i++ {
					if err := appendTurn(context.WithoutCancel(load), log, n, i); err != nil {
						return err
					}
					pause(load, 20*time.Millisecond)
				}
				return nil
			})
			g.Go(func() error { return neverOlder(load, log, v, viewtest.Session(n)) })
		}
		for i := range 3 {
			require.NoError(t, rebuilt(t, log, v))
			require.Equal(t, uint64(2+i), number(t, v))
		}
		stop()
		require.NoError(t, g.Wait())
		caughtUp(t, log, v)
		equalsLog(t, log, v, sessions)
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// neverOlder reads a session until ctx ends.
func neverOlder(ctx context.Context, log *jetlog.Log, v view, session string) error {
	last, turns := uint64(0), 0
	for ctx.Err() == nil {
		state, at, err := v.read(context.WithoutCancel(ctx), log, session)
		switch {
		case err != nil:
			return err
		case state == nil:
			return errors.New("a session is not there")
		case at.Seq < last:
			return fmt.Errorf("a read at %d after one at %d", at.Seq, last)
		case state.Finalized+state.Pending+1 < turns: // a redaction takes one
			return fmt.Errorf("%d turns after %d", state.Finalized+state.Pending, turns)
		}
		last, turns = at.Seq, state.Finalized+state.Pending
		pause(ctx, 5*time.Millisecond) // what reads as fast as it can takes the processors from the rebuild
	}
	return nil
}

// breaking is a generation whose steps end at one of them: with an error, or as if
// the process had ended there.
type breaking struct {
	projections.Generation
	steps int
	err   error
}

func (b *breaking) step() error {
	if b.steps--; b.steps < 0 {
		return b.err
	}
	return nil
}

func (b *breaking) Claim(ctx context.Context, k int) (projections.Checkpoint, error) {
	if err := b.step(); err != nil {
		return projections.Checkpoint{}, err
	}
	return b.Generation.Claim(ctx, k)
}

func (b *breaking) Apply(ctx context.Context, batch projections.Batch) error {
	if err := b.step(); err != nil {
		return err
	}
	return b.Generation.Apply(ctx, batch)
}

func (b *breaking) Swap(ctx context.Context, check projections.SwapCheck) error {
	if err := b.step(); err != nil {
		return err
	}
	return b.Generation.Swap(ctx, check)
}

type breakable struct {
	view
	wrap func(projections.Generation) projections.Generation
}

func (b breakable) NewGeneration(ctx context.Context) (projections.Generation, error) {
	g, err := b.view.NewGeneration(ctx)
	if err != nil {
		return nil, err
	}
	return b.wrap(g), nil
}

// A rebuild that fails at any step leaves what is served as it was, and can be
// started again.
func TestRebuildThatFailsLeavesTheServedView(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		log, v, stop := fed(t, open, 1, 4, 8)
		stop()
		failed := errors.New("the end")
		for step := 0; ; step++ {
			batch := 20 + rng.IntN(30)
			broken := breakable{v, func(g projections.Generation) projections.Generation {
				return &breaking{Generation: g, steps: step, err: failed}
			}}
			r, err := begin(t.Context(), log, broken, batch)
			require.NoError(t, err, "seed %d, step %d", seed, step)
			before := number(t, v)
			if err = r.Run(t.Context()); err == nil {
				require.Greater(t, step, 3)
				require.Equal(t, r.Generation(), number(t, v))
				break
			}
			require.ErrorIs(t, err, failed, "seed %d, step %d", seed, step)
			require.Equal(t, before, number(t, v))
			equalsLog(t, log, v, 4)
			require.Equal(t, rebuild.StateFailed, r.Status(t.Context(), time.Now())[0].State)
		}
		equalsLog(t, log, v, 4)
	})
}

func TestOnlyOneRebuildAtATime(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log, v, _ := fed(t, open, 1, 2, 3)
		first := must.Get(begin(t.Context(), log, v, 100))(t)
		require.ErrorIs(t, rebuilt(t, log, v), projections.ErrRebuilding)
		require.NoError(t, first.Run(t.Context()))
		require.NoError(t, rebuilt(t, log, v))
		equalsLog(t, log, v, 2)
	})
}

// What the served generation applied last was erased since, and nothing comes after it: the new one stands where
// that does.
func TestRebuildEndsWhereTheHeadWasErased(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log, v, stop := fed(t, open, 1, 2, 4)
		stop()
		before := must.Get(v.Served(t.Context()))(t)
		head := must.Get(log.Head(t.Context(), 0))(t)
		for ; head.Seq > before.At[0].Seq-2; head.Seq-- {
			must.Get(overwrite.On(log).Erase(t.Context(), head))(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
		defer cancel()
		require.NoError(t, must.Get(begin(ctx, log, v, 3))(t).Run(ctx))
		require.Equal(t, before.At[0].Seq, must.Get(v.Served(t.Context()))(t).At[0].Seq)
		equalsLog(t, log, v, 2)
	})
}

// A cancelled rebuild ends at once, and leaves nothing in the way of the next.
func TestCancelledRebuild(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log, v, _ := fed(t, open, 1, 3, 5)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := func(g projections.Generation) projections.Generation { return cancels{g, cancel} }
		require.ErrorIs(t, must.Get(begin(ctx, log, breakable{v, cancelled}, 5))(t).Run(ctx), context.Canceled)
		require.Equal(t, uint64(1), number(t, v))
		equalsLog(t, log, v, 3)
		require.NoError(t, rebuilt(t, log, v))
	})
}

type cancels struct {
	projections.Generation
	cancel context.CancelFunc
}

func (c cancels) Apply(ctx context.Context, b projections.Batch) error {
	if b.To.Seq > 10 {
		c.cancel()
	}
	return c.Generation.Apply(ctx, b)
}

// A projection that follows another stream, or one that was put back, stops and says
// what to do; a rebuild from the stream that is there mends it.
func TestAStreamThatIsAnotherIsNoticedAndRebuilt(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log := natstest.Log(t, 1)
		fill(t, log, 2, 6)
		for what, cp := range map[string]projections.Checkpoint{
			"made anew": {Seq: 9, Created: time.Unix(1, 0).UTC(), EventID: "x"},
			"restored":  {Seq: 9, Created: log.Created(0), EventID: "x"},
			"shorter":   {Seq: 900, Created: log.Created(0), EventID: "x"},
		} {
			v := open(t, log)
			at, err := v.Claim(t.Context(), 0)
			require.NoError(t, err, what)
			cp.Epoch = at.Epoch
			require.NoError(t, v.Apply(t.Context(), projections.Batch{From: at, To: cp}), what)
			err = runner.New(log, v, runner.Config{Rules: rules}).Run(t.Context())
			require.ErrorIs(t, err, projections.ErrStream, what)
			require.ErrorContains(t, err, "projections rebuild", what)
			require.NoError(t, rebuilt(t, log, v), what)
			live(t, log, v)
			caughtUp(t, log, v)
			equalsLog(t, log, v, 2)
		}
	})
}

// tooLate swaps though the rebuild is cancelled meanwhile.
type tooLate struct {
	projections.Generation
	swapping chan struct{}
}

func (g tooLate) Swap(ctx context.Context, check projections.SwapCheck) error {
	close(g.swapping)
	<-ctx.Done()
	return g.Generation.Swap(context.WithoutCancel(ctx), check)
}

// Who breaks a rebuild off hears what became of it, not that it was asked to end.
func TestACancelThatComesTooLateSaysSo(t *testing.T) {
	t.Parallel()
	log, v, _ := fed(t, openMemory, 1, 2, 4)
	before, swapping := number(t, v), make(chan struct{})
	late := func(g projections.Generation) projections.Generation { return tooLate{g, swapping} }
	r := must.Get(begin(t.Context(), log, breakable{v, late}, 100))(t)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(t.Context()) }()
	<-swapping
	cancelled := must.Get(r.Cancel(t.Context()))(t)
	require.False(t, cancelled)
	require.NoError(t, <-ran)
	require.Equal(t, before+1, number(t, v))
	cancelled = must.Get(r.Cancel(t.Context()))(t)
	require.False(t, cancelled)
}

// An event that an operator has dropped is passed over, and stays dropped with who and
// why; one that is only parked stops a rebuild.
func TestRebuildPassesOverWhatAnOperatorDropped(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log := natstest.Log(t, 1)
		fill(t, log, 2, 10)
		v := open(t, log)
		q := desk.Of(log).Queue(v, log, rules)
		live(t, log, poisonedLive{v.View})
		caughtUp(t, log, v)
		poisoned := breakable{v, func(g projections.Generation) projections.Generation { return poison{g} }}

		require.ErrorContains(t, rebuilt(t, log, poisoned),
			"the rebuild stopped at 0:17, which can't be applied: a poisoned row")
		require.Equal(t, uint64(1), number(t, v))
		drop := projections.Drop{Reason: "a test said so", By: "me",
			At: time.Now().UTC().Truncate(time.Millisecond)}
		must.Get(q.DropDeadLetter(t.Context(), events.Position{Seq: 17}, drop))(t)
		for range 2 {
			before := number(t, v)
			require.NoError(t, rebuilt(t, log, poisoned))
			require.Greater(t, number(t, v), before)
			letters := must.Get(q.DeadLetters(t.Context()))(t)
			require.Len(t, letters, 1)
			require.Equal(t, events.Position{Seq: 17}, letters[0].Position)
			require.Equal(t, &drop, letters[0].Dropped)
		}
		require.NoError(t, rebuilt(t, log, v), "what can be applied by now is")
		require.Empty(t, must.Get(q.DeadLetters(t.Context()))(t))
		equalsLog(t, log, v, 2)
	})
}

type poisonedLive struct{ viewtest.View }

func (p poisonedLive) Apply(ctx context.Context, b projections.Batch) error {
	if err := poisoned(b); err != nil {
		return err
	}
	return p.View.Apply(ctx, b)
}

func poisoned(b projections.Batch) error {
	for _, e := range b.Events {
		if e.Position.Seq == 17 {
			return projections.Permanent(errors.New("a poisoned row"))
		}
	}
	return nil
}

type poison struct{ projections.Generation }

func (p poison) Apply(ctx context.Context, b projections.Batch) error {
	if err := poisoned(b); err != nil {
		return err
	}
	return p.Generation.Apply(ctx, b)
}

// A log that does not answer for a while, as in an election, does not end a rebuild, whatever it
// is asked for first.
func TestARebuildWaitsForTheLog(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]func(wire sync.Locker, g projections.Generation) projections.Generation{
		"head": func(wire sync.Locker, g projections.Generation) projections.Generation { silent(wire); return g },
		"consumer": func(wire sync.Locker, g projections.Generation) projections.Generation {
			return claimedInSilence{g, wire}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, wire := natstest.Wired(t)
			log := must.Get(jetlog.Open(t.Context(), nc, jetlog.Config{}))(t)
			fill(t, log, 3, 4)
			v := openMemory(t, log)
			live(t, log, v)
			caughtUp(t, log, v)
			require.NoError(t, rebuilt(t, log,
				breakable{v, func(g projections.Generation) projections.Generation { return locks(wire, g) }}))
			require.Equal(t, uint64(2), number(t, v))
		})
	}
}

// silent cuts the log off for a while: each question is given up after 5 s.
func silent(wire sync.Locker) {
	wire.Lock()
	time.AfterFunc(8*time.Second, wire.Unlock)
}

// claimedInSilence loses the log when the rebuild has its partition, and before it reads it.
type claimedInSilence struct {
	projections.Generation
	wire sync.Locker
}

func (g claimedInSilence) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	silent(g.wire)
	return g.Generation.Claim(ctx, partition)
}
