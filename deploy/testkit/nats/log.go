package nats

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Run runs a function until the test ends, or until stop is called. The function must end without an error.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// Append appends facts, each by itself, waits until they are durable, and returns the last position.
func Append(t testing.TB, log *jetlog.Log, facts ...events.Fact) (at events.Position) {
	t.Helper()
	last := map[int]events.Position{} // of each partition
	for _, f := range facts {
		ack := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
		at = ack.Position
		last[at.Partition] = at
	}
	for _, position := range last {
		require.NoError(t, log.Durable(t.Context(), position))
	}
	return at
}

// Fold returns a session folded from the log.
func Fold(t testing.TB, log *jetlog.Log, session string, rules conversation.Rules) *conversation.State {
	t.Helper()
	state := conversation.New(session, rules)
	for e, err := range log.Session(context.WithoutCancel(t.Context()), session, 0, math.MaxUint64) {
		require.NoError(t, err)
		state.Fold(e)
	}
	return state
}
