package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
)

// A view whose store answers at last, or whose index another process makes at last, is read soon after.
func TestAViewIsReadSoonAfterItsStoreAnswers(t *testing.T) {
	t.Parallel()
	v := &kept{}
	v.set(nil)
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
	require.Less(t, <-waited, time.Second)
	require.Eventually(t, func() bool { return m.Readable() == nil }, time.Second, time.Millisecond)
}
