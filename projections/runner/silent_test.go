package runner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/runner"
)

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
	run(t, runner.New(log, s, runner.Config{Rules: rules, Pause: time.Hour, Group: group, Beat: 5 * time.Millisecond}))
	<-group.lost
	fill(t, log, 1, 5)
	require.Eventually(t, func() bool { return s.reached(0) == 10 }, 20*time.Second, time.Millisecond)
	_, err := s.Claim(t.Context(), 0)
	require.NoError(t, err)
	fill(t, log, 1, 6)
	require.Never(t, func() bool { return s.reached(0) > 10 }, 200*time.Millisecond, 10*time.Millisecond,
		"it is fenced")
}
