package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
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
	require.Less(t, time.Since(began), hang.Limit)
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
		"flushed":                func(t *testing.T, f *fixture) { f.do(t, "FLUSHALL") },
		"restarted":              func(_ *testing.T, f *fixture) { f.server.Restart(redistest.Empty) },
		"without its checkpoint": func(t *testing.T, f *fixture) { f.do(t, "DEL", f.view.Key(1, "cp", "0")) },
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
			hang.Until(t, func() bool { // the first try may meet a connection to the server of before
				_, err := f.view.Claim(t.Context(), 0)
				return err == nil
			})
			f.feed.Claim(2)
			require.Equal(t, uint64(2), f.feed.At.Seq, "there is no checkpoint")
			require.Nil(t, f.load(t, "s").State, "what another checkpoint left does not count")
			f.feed.All(2)
			require.Len(t, f.load(t, "s").State.Turns, 3)
			require.False(t, f.load(t, "s").State.Whole)
		})
	}
}

// A Redis that was emptied has forgotten the epochs, too. A runner of before may not write behind the claim of the
// next: its checkpoint would pass over what is not there any more.
func TestARunnerOfBeforeIsFencedInARedisThatWasEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := redis.Config{URL: server.URL(), Limits: recent.Limits{TTL: time.Hour, MaxTurns: 10}, LoadTimeout: patience}
	before, next := view(t, cfg), view(t, cfg)
	from := must.Get(before.Claim(t.Context(), 0))(t)
	to := from
	to.Seq, to.EventID = 100, "an id"
	require.NoError(t, before.Apply(t.Context(), projections.Batch{From: from, To: to}))
	server.Stop()
	server.Restart(redistest.Empty)
	hang.Until(t, func() bool {
		claimed, err := next.Claim(t.Context(), 0)
		return err == nil && claimed.Seq == 0
	})
	later := to
	later.Seq = 101
	fenced(t, before, projections.Batch{From: to, To: later})
}

func TestARedisThatLetsNobodyInIsToldAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.view.Admitted(t.Context()))
	stranger := must.Get(redis.New(redis.Config{URL: strings.Replace(f.server.URL(), "unix://", "unix://nobody:hidden@",
		1)}))(t)
	t.Cleanup(stranger.Close)
	err := stranger.Admitted(t.Context())
	require.ErrorIs(t, err, redis.ErrDenied)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "hidden")
	f.server.Stop()
	late := must.Get(redis.New(redis.Config{URL: f.server.URL()}))(t)
	t.Cleanup(late.Close)
	require.NoError(t, late.Admitted(t.Context()), "it may come later")
}

// What fails at once after Redis gave no answer does so until it gives one, not for a time.
func TestARedisThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.Stop()
	require.Error(t, must.Err(f.view.Load(t.Context(), "s", 0, -1)))
	f.server.Restart(redistest.Empty)
	hang.Until(t, func() bool {
		_, err := f.view.Claim(t.Context(), 0)
		return err == nil
	})
	require.Zero(t, f.load(t, "s"))
}

// A Redis without a connection to spare says so before it is asked. The client panicked over that where a
// caller's time was over right after the dial: the words met a reader that nobody had asked anything of.
func TestAConnectionRefusedToACallerInAHurry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.load(t, "s")
	f.raw.Close()
	f.server.Stop()
	refuse(t, strings.TrimPrefix(f.server.URL(), "unix://"))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 500 {
				hurry, cancel := context.WithTimeout(t.Context(), time.Duration(i%100)*10*time.Microsecond)
				require.Error(t, must.Err(f.view.Load(hurry, "s", 0, 10)))
				cancel()
			}
		})
	}
	callers.Wait()
}

// refuse answers every connection with what Redis says when it has as many as it may.
func refuse(t *testing.T, socket string) {
	t.Helper()
	listener := must.Get(net.Listen("unix", socket))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = conn.Close()
		}
	}()
}
