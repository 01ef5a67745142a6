package runner_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/runner"
)

// counted counts the batches that reach a sink.
type counted struct {
	projections.Projection
	batches atomic.Int64
}

func (c *counted) Apply(ctx context.Context, b projections.Batch) error {
	c.batches.Add(1)
	return c.Projection.Apply(ctx, b)
}

// Events that come while a partition rests are one batch.
func TestEventsGatherWhileAPartitionRests(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := newSink()
	c := &counted{Projection: s}
	natstest.Run(t, runner.New(log, c, runner.Config{Rules: rules, Feeding: runner.Feeding{Rest: 2 * time.Second}}).Run)
	fill(t, log, 1, 1)
	hang.Until(t, func() bool { return s.reached(0) > 0 })
	before := c.batches.Load()
	for i := range 20 {
		pause.For(t.Context(), 3*time.Millisecond)
		natstest.Append(t, log, &events.SessionLinked{SessionID: fmt.Sprint("late", i), IdentityID: "i"})
	}
	hang.Until(t, func() bool { return s.reached(0) == 22 })
	require.Less(t, c.batches.Load()-before, int64(5), "20 events, one after the other")
}
