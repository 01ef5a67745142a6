package weaviate

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/pause"
)

// The ports of a server that is away are nobody else's until its test ends. Those of its gossip must be free for it.
func TestPortsStayTaken(t *testing.T) {
	t.Parallel()
	for n, port := range freePorts(t, 6) {
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		taken := mark(t, number)
		if taken != nil {
			require.NoError(t, taken.Close())
		}
		require.Equal(t, n < outsidePorts, taken == nil, "port %d", n)
	}
}

// A server waits for a port of its own that something holds for a moment.
func TestAServerWaitsForItsPorts(t *testing.T) {
	t.Parallel()
	s := &Server{t: t, ports: freePorts(t, 6)}
	port, err := strconv.Atoi(s.ports[1])
	require.NoError(t, err)
	held := listen(t, port)
	require.NotNil(t, held)
	go func() {
		pause.For(t.Context(), 100*time.Millisecond)
		_ = held.Close()
	}()
	for _, f := range s.listeners() {
		require.NoError(t, f.Close())
	}
}
