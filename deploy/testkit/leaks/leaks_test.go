package leaks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests run beside no others: they look at all goroutines of the process.
func TestGoroutinesThatEndLateAreWaitedFor(t *testing.T) { //nolint:paralleltest // see above
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-time.After(2 * time.Second) // longer than goleak waits
	}()
	require.NoError(t, find(time.Minute))
	<-ended
}

func TestGoroutinesThatStayAreFound(t *testing.T) { //nolint:paralleltest // see above
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-end
	}()
	require.ErrorContains(t, find(time.Second), "TestGoroutinesThatStayAreFound")
	close(end)
	<-ended
}
