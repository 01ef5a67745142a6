package weaviate_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// A server that is away is tried again about every second, however long it is away.
func TestAnOutageIsNotLengthened(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	tried := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			tried <- struct{}{}
		}
	}()
	w, err := weaviate.New(weaviate.Config{URL: "http://127.0.0.1:1", GRPC: l.Addr().String()})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	const tries = 9 // the pauses of gRPC's own would be 1, 2, 3, 4, 7, 10, 17 and 27 s
	for deadline := time.Now().Add(40 * time.Second); len(tried) < tries; {
		require.True(t, time.Now().Before(deadline), "tried %d times", len(tried))
		_, err := w.Page(t.Context(), "any", [16]byte{}, 1)
		require.ErrorIs(t, err, projections.ErrUnavailable)
		<-time.After(20 * time.Millisecond)
	}
}
