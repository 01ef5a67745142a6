//go:build alone

package systemtest_test

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Idle connections take little memory, hold up no request, and are closed after the idle timeout.
func TestMemoryOfIdleConnections(t *testing.T) {
	t.Parallel()
	total := 1000
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		total = 5000
	}
	p := stack.Serve(t, []string{"TURNLEDGER_HTTP_IDLE_TIMEOUT=5s", "TURNLEDGER_HTTP_HEADER_TIMEOUT=5s"})
	p.RecordTurn(t, "s", "r0", "question 0", "answer 0")
	before := p.ResidentMemory(t)
	conns := make([]net.Conn, total)
	for i := range conns {
		var err error
		conns[i], err = net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
		require.NoError(t, err)
		if i%2 == 0 { // the others never say anything
			_, err = conns[i].Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			require.NoError(t, err)
		}
	}
	// The test's own connection is idle, too; http.Client does not repeat a POST when the server closes it.
	http.DefaultClient.CloseIdleConnections()
	p.RecordTurn(t, "s", "r1", "question 1", "answer 1")
	each := (p.ResidentMemory(t) - before) / int64(total)
	t.Logf("%d bytes a connection", each)
	require.Less(t, each, int64(128<<10))
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		buf := make([]byte, 4096)
		for n := 1; n > 0; {
			n, _ = c.Read(buf)
		}
		require.NoError(t, c.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, stack.Exchanges(2), p.Context(t, "s"))
	p.Stop(t)
}
