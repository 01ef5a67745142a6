package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/runner"
)

func TestStatusCountsFromTheHeadAndTellsTheRate(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 20)
	s := newSink()
	stuck := errors.New("the store is away")
	s.fail = func(b projections.Batch) (error, error) {
		if b.To.Seq > 21 {
			return stuck, nil
		}
		return nil, nil
	}
	r := runner.New(log, s, runner.Config{Feeding: runner.Feeding{MaxBatch: 1}, Pause: 5 * time.Millisecond})
	natstest.Run(t, r.Run)
	var got projections.Status
	hang.Until(t, func() bool {
		got = r.Status(t.Context(), time.Now())[0]
		return got.State == "retrying" && got.Position.Seq == 21
	})
	require.Equal(t, uint64(40), got.Head.Seq)
	require.Equal(t, uint64(19), got.LagEvents)
	require.Positive(t, got.LagSeconds)
	require.InDelta(t, 2.1, got.Rate, 0.001, "21 events in the last ten seconds")
	require.Equal(t, stuck.Error(), got.LastError)
	require.Zero(t, r.Status(t.Context(), time.Now().Add(time.Minute))[0].Rate)
}

// A projection that has applied nothing at all is as late as the log is old.
func TestNothingAppliedIsNoZeroLag(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 3)
	s := newSink()
	s.fail = func(projections.Batch) (error, error) { return errors.New("the store is away"), nil }
	r := runner.New(log, s, runner.Config{Pause: 5 * time.Millisecond})
	natstest.Run(t, r.Run)
	hang.Until(t, func() bool {
		got := r.Status(t.Context(), time.Now())[0]
		return got.State == "retrying" && got.LagEvents == got.Head.Seq && got.LagSeconds > 0
	})
}

// A log that does not answer is not a log without news.
func TestAHeadThatIsNotToldIsNoZeroLag(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	log := natstest.LogOn(t, srv, 2)
	fill(t, log, 4, 3)
	s := newSink()
	r := runner.New(log, s, runner.Config{})
	natstest.Run(t, r.Run)
	// The runner notes where it is a moment after the sink has got there.
	hang.Until(t, func() bool {
		live := 0
		for _, got := range r.Status(t.Context(), time.Now()) {
			if got.State == "live" && got.Position == got.Head && !got.HeadUnknown {
				live++
			}
		}
		return s.reached(0)+s.reached(1) == 24 && live == 2
	})
	srv.Stop()
	for k, got := range r.Status(t.Context(), time.Now()) {
		require.True(t, got.HeadUnknown)
		require.NotEqual(t, "live", got.State)
		require.NotEmpty(t, got.LastError)
		require.Equal(t, events.Position{Partition: k, Seq: s.reached(k)}, got.Position, "what it has applied is known")
	}
}
