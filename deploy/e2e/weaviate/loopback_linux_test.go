package weaviate_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// No port of a server is open on another address than 127.0.0.1. An address of loopback stands for all others: who
// listens on all interfaces is reached by it, too.
func TestNoPortIsOpenBeyondLoopback(t *testing.T) {
	t.Parallel()
	if !weaviatetest.Apart() {
		t.Log("this system grants no network namespaces: gRPC and the data port listen on all interfaces")
		return
	}
	s := weaviatetest.Start(t)
	for _, port := range s.Ports() {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", port))
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err, port)
	}
}
