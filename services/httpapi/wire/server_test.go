package wire_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func TestCheckListen(t *testing.T) {
	t.Parallel()
	for addr, alone := range map[string]bool{
		"127.0.0.1:8480": true, "127.8.9.1:80": true, "[::1]:8480": true, "localhost:8480": true,
		"[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:8480":         false, ":8480": false, "[::]:8480": false, "10.0.0.1:8480": false,
		"example.org:8480":        false,
		"localhost.example.org:1": false,
	} {
		err := wire.CheckListen(addr, false)
		if alone {
			require.NoError(t, err, addr)
		} else {
			require.ErrorIs(t, err, wire.ErrOpen, addr)
		}
		require.NoError(t, wire.CheckListen(addr, true), addr)
	}
	for _, addr := range []string{"", "8480", "127.0.0.1"} {
		require.Error(t, wire.CheckListen(addr, true), addr)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// A request that does not end in time is reported, and does not keep the process.
func TestStoppingHasADeadline(t *testing.T) {
	t.Parallel()
	l := listen(t)
	under, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer close(done)
		close(under)
		<-release
		// The connection is closed by now. The server notices that a moment later, where it reads in the background.
		select {
		case <-r.Context().Done():
		case <-time.After(hang.Limit):
			t.Error("the request outlived its connection")
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- wire.Serve(ctx, l, handler, wire.ServerConfig{Drain: 20 * time.Millisecond})
	}()
	go func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-under
	stop()
	require.ErrorContains(t, <-ended, "under way")
	close(release)
	<-done
}

func TestAListenerThatFailsEndsTheRun(t *testing.T) {
	t.Parallel()
	l := listen(t)
	require.NoError(t, l.Close())
	require.Error(t, wire.Serve(t.Context(), l, http.NotFoundHandler(), wire.ServerConfig{}))
}
