package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
)

// A view whose store answers at last, or whose index another process makes at last, is read soon after.
func TestAViewIsReadSoonAfterItsStoreAnswers(t *testing.T) {
	t.Parallel()
	v := newKept()
	looks, last, waited := 0, time.Time{}, make(chan time.Duration, 1)
	f := newFleet(natstest.Log(t, 1))
	m := add(t, f, fleet.Entry{View: v, Reads: true, Open: func(context.Context) error {
		if looks++; looks < 5 {
			last = time.Now()
			return projections.Unavailable(errors.New("no index yet"))
		}
		waited <- time.Since(last)
		return nil
	}})
	natstest.Run(t, f.Run)
	require.Less(t, <-waited, 10*time.Second)
	hang.Until(t, func() bool { return m.Readable() == nil })
}

// A store may take longer to open than a process waits for it when it starts.
func TestAStoreMayTakeLongToOpen(t *testing.T) {
	t.Parallel()
	limits := make(chan time.Duration, 2)
	f := newFleet(natstest.Log(t, 1))
	v := newKept()
	add(t, f, fleet.Entry{View: v, Reads: true, OpenLimit: time.Hour, Open: func(ctx context.Context) error {
		end, _ := ctx.Deadline()
		limits <- time.Until(end)
		if len(limits) == cap(limits) {
			return nil
		}
		return projections.Unavailable(errors.New("it takes long"))
	}})
	require.Less(t, <-limits, time.Minute)
	limits <- 0
	natstest.Run(t, f.Run)
	require.Zero(t, <-limits)
	require.Greater(t, <-limits, 50*time.Minute)
}
