//go:build alone

package runner_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/liveheap"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/projections/runner"
)

// hangs is a sink that hangs until it is let go.
type hangs struct {
	*sink
	hanging atomic.Int64
	letGo   chan struct{}
}

func (h *hangs) Apply(ctx context.Context, b projections.Batch) error {
	h.hanging.Add(1)
	<-h.letGo
	return h.sink.Apply(ctx, b)
}

// The partitions of a projection that catches up while its store hangs take no more of the heap than the follower's
// budget and their floors, whatever the log holds. Once the store answers they all go on. The test runs beside no
// other, since it measures the heap of the process: all of it but that of the NATS server.
func TestAStoreThatHangsTakesNoMoreOfTheHeapThanTheBudget(t *testing.T) { //nolint:paralleltest // see above
	const partitions, budget, heapOfBudget = 32, 8 << 20, 1.3
	const floors = partitions * 3 * 64 << 10 // of a tail and of what gathers, and the judge's filter of sessions
	liveheap.Note(t)
	for name, c := range map[string]struct {
		turns, length int
		lag           time.Duration
	}{
		"small events":             {turns: 24_000, length: 10},
		"large events":             {turns: 3200, length: 20_000},
		"small events that gather": {turns: 24_000, length: 10, lag: time.Hour},
		"large events that gather": {turns: 3200, length: 20_000, lag: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Server(t)
			log, err := jetlog.Open(t.Context(), natstest.Connect(t, s), jetlog.Config{
				Partitions: partitions, GateDir: s.GateDir(), ReadBytes: budget / 2})
			require.NoError(t, err)
			s.StageInMemory()
			heads := record(t, log, c.turns, c.length)
			store := &hangs{sink: newSink(), letGo: make(chan struct{})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var running errgroup.Group
			f := follower.New(log, follower.Config{Bytes: budget})
			var busy atomic.Bool
			busy.Store(true)
			r := runner.New(log, store, runner.Config{Follower: f, Feeding: runner.Feeding{
				MaxBatch: 10_000, Lag: c.lag, Busy: busy.Load}})
			running.Go(func() error { return f.Run(ctx) })
			running.Go(func() error { return r.Run(ctx) })
			all := func() bool { return store.hanging.Load() == partitions }
			hang.Until(t, all)
			with := steadyHeap(t)
			busy.Store(false)
			close(store.letGo)
			for k, head := range heads {
				whole := func() bool { return store.reached(k) == head }
				hang.Until(t, whole)
			}
			cancel()
			require.NoError(t, running.Wait())
			require.Zero(t, log.Room().Used())
			store.applied = nil
			took := with - liveheap.Bytes()
			t.Logf("heap %.2f of the budget and the floors", took/(budget+floors))
			require.LessOrEqual(t, took, heapOfBudget*(budget+floors))
		})
	}
}

// record writes turns into sessions of twenty, and returns the heads of the partitions.
func record(t *testing.T, log *jetlog.Log, turns, length int) (heads map[int]uint64) {
	t.Helper()
	text := strings.Repeat("q", length)
	var g errgroup.Group
	const writers = 32
	for w := range writers {
		g.Go(func() error {
			for n := w; n < turns; n += writers {
				session := fmt.Sprint(w, ".", n/writers/20)
				f := turntest.Started(session, fmt.Sprint(n), text)
				_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	heads = map[int]uint64{}
	for k := range log.Partitions() {
		head := must.Get(log.Head(t.Context(), k))(t)
		heads[k] = head.Seq
	}
	return heads
}

// steadyHeap returns what is live once that no longer changes.
func steadyHeap(t *testing.T) (now float64) {
	t.Helper()
	hang.Until(t, func() bool {
		before := now
		<-time.After(200 * time.Millisecond)
		now = liveheap.Bytes()
		return math.Abs(now-before) < now/100
	})
	return now
}
