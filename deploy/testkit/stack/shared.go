package stack

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shared returns a server of eight partitions that the tests of this package share, until Runner ends them. It is for
// tests that only read and write: each has sessions and identities of its own, leaves the process running, and says
// nothing of positions, totals or the log's other events.
func Shared(t testing.TB) *Process {
	t.Helper()
	shared.once.Do(func() {
		// A branch may stand in another partition than its parent.
		shared.process = Serve(outlived{t}, []string{"TURNLEDGER_PARTITIONS=8"})
	})
	require.NotNil(t, shared.process, "the test that started the server has failed")
	return shared.process
}

var shared struct {
	once     sync.Once
	process  *Process
	cleanups []func()
}

// outlived is a test that starts what outlives it.
type outlived struct{ testing.TB }

// Cleanup keeps a function for the end of all tests.
func (outlived) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

// Context returns one that does not end with the test.
func (outlived) Context() context.Context { return context.Background() }

// stopShared stops what tests have shared.
func stopShared() {
	for _, cleanup := range slices.Backward(shared.cleanups) {
		cleanup()
	}
}
