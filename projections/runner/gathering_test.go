package runner_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/runner"
)

// While others need the processors, events wait until a batch is full, until one takes a text away, until nobody needs
// the processors any more, or until they have waited long enough.
func TestEventsWaitWhileTheProcessorsAreTaken(t *testing.T) {
	t.Parallel()
	const full = 20
	log := natstest.Log(t, 1)
	n := 0
	link := func() events.Fact {
		n++
		return &events.SessionLinked{SessionID: fmt.Sprint("s", n), IdentityID: "i"}
	}
	add := func(f events.Fact) uint64 { return natstest.Append(t, log, f).Seq }
	s := newSink()
	var busy atomic.Bool
	busy.Store(true)
	natstest.Run(t, runner.New(log, s, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: full, Lag: time.Hour, Busy: busy.Load},
	}).Run)
	applied := func(seq uint64, why string) {
		t.Helper()
		hang.Until(t, func() bool { return s.reached(0) >= seq }, why)
	}
	waits := func(seq uint64, why string) {
		t.Helper()
		require.Never(t, func() bool { return s.reached(0) >= seq }, 300*time.Millisecond, 10*time.Millisecond, why)
	}
	waits(add(link()), "a first event")
	for range full - 2 {
		add(link())
	}
	waits(1, "a batch that is not full")
	applied(add(link()), "a full batch")

	waits(add(link()), "a first event")
	applied(add(&events.SessionErased{SessionID: "s1", ReceiptID: "r"}), "an erasure, and all that came before it")

	last := add(link())
	waits(last, "the erasure is over")
	busy.Store(false)
	applied(last, "nobody needs the processors")

	busy.Store(true)
	patient := newSink()
	natstest.Run(t, runner.New(log, patient, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: 2 * full, Lag: 2 * time.Second, Busy: busy.Load},
	}).Run)
	hang.Until(t, func() bool { return patient.reached(0) >= last })
	began := time.Now()
	last = add(link())
	hang.Until(t, func() bool { return patient.reached(0) >= last })
	require.GreaterOrEqual(t, time.Since(began), time.Second, "it waits for its time")
}

// How long events wait is bounded by this process's clock, too: that of the log's server may be ahead.
func TestAClockThatIsAheadLengthensNoWait(t *testing.T) {
	t.Parallel()
	f := runner.Feeding{MaxBatch: 2, Lag: 2 * time.Second, Busy: func() bool { return true }}
	for _, ahead := range []time.Duration{0, time.Hour} {
		require.True(t, f.Waits(time.Now().Add(ahead), time.Second), ahead)
		require.False(t, f.Waits(time.Now().Add(ahead), 3*time.Second), ahead)
	}
	require.False(t, f.Waits(time.Now().Add(-time.Hour), 0), "an old event")
}

// Goroutines that compute on all processors let others wait.
func TestProcessorsAreTaken(t *testing.T) {
	var p runner.Processors
	require.False(t, p.Taken(), "nothing is known yet")
	var done atomic.Bool
	for range 8 * runtime.GOMAXPROCS(0) {
		go func() {
			for !done.Load() {
				continue // it computes
			}
		}()
	}
	defer done.Store(true)
	hang.Until(t, p.Taken)
}

// Events that come one at a time are not copied again with each that comes, and a batch stays as it was taken.
func TestGatheringCopiesLittle(t *testing.T) {
	all := make([]projections.Judged, 1000)
	for i := range all {
		all[i].Position.Seq = uint64(i + 1)
	}
	f := runner.Feeding{MaxBatch: 40}
	next := uint64(1)
	for _, batch := range f.Gathered(all, 50) {
		require.Len(t, batch, 40)
		for _, e := range batch {
			require.Equal(t, next, e.Position.Seq)
			next++
		}
	}
	require.Greater(t, next, uint64(900))
	size := testing.AllocsPerRun(5, func() { runner.Feeding{MaxBatch: len(all)}.Gathered(all, len(all)) })
	require.Less(t, size, 40.0, "they grow in steps")
}
