package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

// TestDown goes through all that a Redis which does not answer is to the view: an
// error each time, never an empty snapshot.
func TestDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 3)
	f.feed.All(2)
	f.server.Stop()
	must.Fail(f.view.Load(t.Context(), "s", 0, 10))(t, projections.ErrUnavailable)
	_, err := f.view.Load(t.Context(), "s", 0, 10)
	require.ErrorContains(t, err, "no answer from Redis a moment ago")
	require.ErrorIs(t, err, projections.ErrUnavailable)
	must.Fail(f.view.Claim(t.Context(), 0))(t, projections.ErrUnavailable)
	must.Fail(f.view.Served(t.Context()))(t, projections.ErrUnavailable)
	must.Fail(f.view.NewGeneration(t.Context()))(t, projections.ErrUnavailable)
	require.Error(t, f.view.Wait(t.Context(), events.Position{Seq: 1}))
	f.turns(t, "s", 1)
	late := f.feed.Batch(2)
	err = f.view.Apply(t.Context(), late)
	require.ErrorIs(t, err, projections.ErrUnavailable)
	require.NotErrorIs(t, err, projections.ErrFenced)
	require.False(t, projections.IsPermanent(err))
	require.NotContains(t, err.Error(), secret)

	early := view(t, f.cfg)
	must.Fail(early.Load(t.Context(), "s", 0, 10))(t, projections.ErrUnavailable, "a view that was never connected")

	f.server.Restart(redistest.Kept)
	for _, v := range []*redis.View{f.view, early} {
		hang.Until(t, func() bool {
			snap, err := v.Load(t.Context(), "s", 0, -1)
			return err == nil && len(snap.State.Turns) == 3
		})
	}
	// A connection that was not used since is found broken by who uses it first.
	hang.Until(t, func() bool { return f.view.Apply(t.Context(), late) == nil })
	require.Len(t, f.load(t, "s").State.Turns, 4)
}

// TestHangs has a Redis that takes connections and says nothing.
func TestHangs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 1)
	f.feed.All(2)
	f.cfg.LoadTimeout = 0
	short := view(t, f.cfg)
	_, _ = short.Load(t.Context(), "s", 0, 10) // connects
	f.server.Pause()
	began := time.Now()
	require.Error(t, must.Err(short.Load(t.Context(), "s", 0, 10)))
	require.Less(t, time.Since(began), 20*time.Second)
	require.ErrorContains(t, must.Err(short.Load(t.Context(), "s", 0, 10)), "no answer from Redis a moment ago")
	f.server.Resume()
	hang.Until(t, func() bool {
		snap, err := short.Load(context.Background(), "s", 0, -1)
		return err == nil && len(snap.State.Turns) == 1
	})
}

func TestACallerInAHurrySaysNothingOfRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 1)
	f.feed.All(2)
	f.server.Pause()
	hurry, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.Error(t, must.Err(f.view.Load(hurry, "s", 0, 10)))
	f.server.Resume()
	require.Len(t, f.load(t, "s").State.Turns, 1)
}

// fenced waits until a batch is fenced: a connection that was not used since is found broken by who uses it first.
func fenced(t *testing.T, v *redis.View, late projections.Batch) {
	t.Helper()
	hang.Until(t, func() bool { return errors.Is(v.Apply(t.Context(), late), projections.ErrFenced) })
}

// TestFlushed finds a Redis empty: the session is not held, the one who fed it is
// fenced, and the next one begins anew.
func TestFlushed(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(*testing.T, *fixture){
		"flushed":   func(t *testing.T, f *fixture) { f.do(t, "FLUSHALL") },
		"restarted": func(_ *testing.T, f *fixture) { f.server.Restart(redistest.Empty) },
		"without its checkpoint": func(t *testing.T, f *fixture) {
			f.do(t, "DEL", f.view.Key(1, "cp", "0"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.turns(t, "s", 3)
			f.feed.All(3)
			flush(t, f)
			hang.Until(t, func() bool {
				_, err := f.view.Load(t.Context(), "s", 0, 1)
				return err == nil
			})
			require.Equal(t, recent.Snapshot{}, f.load(t, "s"))
			f.turns(t, "s", 1)
			late := f.feed.Batch(2)
			fenced(t, f.view, late)
			f.feed.Claim(2)
			require.Equal(t, uint64(2), f.feed.At.Seq, "there is no checkpoint")
			require.Nil(t, f.load(t, "s").State, "what another checkpoint left does not count")
			f.feed.All(2)
			require.Len(t, f.load(t, "s").State.Turns, 3)
			require.False(t, f.load(t, "s").State.Whole)
		})
	}
}
