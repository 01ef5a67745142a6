package runner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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

// silenced is a group that a runner meets once.
type silenced struct {
	met  atomic.Int64
	lost chan struct{}
}

func (s *silenced) Beat(_ context.Context, member string, _ time.Duration) ([]string, error) {
	if s.met.Add(1) > 1 {
		select {
		case s.lost <- struct{}{}:
		default:
		}
		return nil, errors.New("the notes are away")
	}
	return []string{member}, nil
}

func (*silenced) Leave(context.Context, string) error { return nil }

// A runner that can't tell the others that it lives goes on feeding until another one has fenced it.
func TestARunnerThatCannotBeatGoesOn(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s, group := newSink(), &silenced{lost: make(chan struct{}, 1)}
	natstest.Run(t, runner.New(log, s, runner.Config{Rules: rules, Pause: time.Hour, Group: group,
		Beat: 5 * time.Millisecond}).Run)
	<-group.lost
	fill(t, log, 1, 5)
	hang.Until(t, func() bool { return s.reached(0) == 10 })
	must.Get(s.Claim(t.Context(), 0))(t)
	fill(t, log, 1, 6)
	require.Never(t, func() bool { return s.reached(0) > 10 }, 200*time.Millisecond, 10*time.Millisecond,
		"it is fenced")
}

// answering is a store that may be away.
type answering struct {
	*sink
	away atomic.Bool
}

// Applied implements projections.Projection.
func (a *answering) Applied(ctx context.Context, k int) (events.Position, error) {
	if a.away.Load() {
		return events.Position{}, errors.New("the store is away")
	}
	return a.sink.Applied(ctx, k)
}

// The status says that a store does not answer also while nobody writes, and that it answers again.
func TestAnIdleStoreThatIsAwayIsNotLive(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 3)
	store := &answering{sink: newSink()}
	r := runner.New(log, store, runner.Config{Rules: rules, Pause: 5 * time.Millisecond, Beat: 5 * time.Millisecond})
	natstest.Run(t, r.Run)
	says := func(state, lastError string) {
		t.Helper()
		hang.Until(t, func() bool {
			s := r.Status(t.Context(), time.Now())[0]
			return s.State == state && s.LastError == lastError && s.Position.Seq == 6 && s.LagEvents == 0
		})
	}
	for range 2 {
		says("live", "")
		store.away.Store(true)
		says("retrying", "the store is away")
		store.away.Store(false)
	}
	says("live", "")
	require.Equal(t, 6, len(store.applied), "nothing is applied again")
}

// elsewhere is a group in which another runner feeds everything.
type elsewhere struct{}

func (elsewhere) Beat(context.Context, string, time.Duration) ([]string, error) {
	return []string{"other"}, nil
}
func (elsewhere) Leave(context.Context, string) error { return nil }

// hanging is a store that takes questions and answers none.
type hanging struct{ *sink }

// Applied implements projections.Projection.
func (hanging) Applied(ctx context.Context, _ int) (events.Position, error) {
	<-ctx.Done()
	return events.Position{}, errors.New("the store hangs")
}

// The status of a standby says that the store does not answer, and how long the log is.
func TestAStandbyWhoseStoreHangsBlamesTheStore(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 3)
	r := runner.New(log, hanging{newSink()}, runner.Config{Group: elsewhere{}, Beat: 5 * time.Millisecond})
	natstest.Run(t, r.Run)
	hang.Until(t, func() bool {
		s := r.Status(t.Context(), time.Now())[0]
		return s.State == "retrying" && s.LastError == "the store hangs" && !s.HeadUnknown && s.Head.Seq == 6
	})
}
