//go:build alone

package follower_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/liveheap"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/follower"
)

// The budget is one of the real heap: what a follower of many partitions holds for subscribers that take nothing, for
// its judges and for a slow disk takes at most heapOfBudget times as much. The test runs beside no other, since it
// measures the heap of the process: all of it but that of the NATS server.
func TestAFollowerTakesNoMoreOfTheHeapThanItsBudget(t *testing.T) { //nolint:paralleltest // see above
	const partitions, budget, heapOfBudget = 8, 8 << 20, 1.3
	liveheap.Note(t)
	for name, c := range map[string]struct {
		turns, length int
		slow          bool
	}{
		"small events":              {turns: 8000, length: 10},
		"large events":              {turns: 800, length: 20_000},
		"small events, a slow disk": {turns: 8000, length: 10, slow: true},
		"large events, a slow disk": {turns: 800, length: 20_000, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := &slowDisk{Log: natstest.Log(t, partitions)}
			f := follower.New(log, follower.Config{Rules: rules, Bytes: budget})
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			leave := joinAll(t, f, log.Log)
			log.slow.Store(c.slow)
			writeTurns(t, log.Log, "held", c.turns, c.length)
			hang.Until(t, func() bool { return f.Used() > budget*3/4 })
			with := heap(t)
			require.LessOrEqual(t, f.Used(), int64(budget))
			leave()
			cancel()
			require.NoError(t, <-ended)
			took := with - heap(t)
			t.Logf("heap %.2f of the budget", took/budget)
			require.Zero(t, f.Used())
			require.LessOrEqual(t, took, heapOfBudget*budget)
			require.Greater(t, took, 0.4*budget, "far less is held than there is room for")
		})
	}
}

// heap returns what is live beside the NATS server, also once others have let go of what they hold for moments.
func heap(t *testing.T) float64 {
	t.Helper()
	least := liveheap.Bytes()
	for range 5 {
		pause.For(t.Context(), 20*time.Millisecond)
		least = min(least, liveheap.Bytes())
	}
	return least
}
