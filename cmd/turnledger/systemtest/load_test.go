//go:build alone

package systemtest_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
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
		require.NoError(t, c.SetReadDeadline(time.Now().Add(hang.Limit)))
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

// A replay holds a part of the log at a time: of a log that is 48 MB longer it takes no more memory. (A
// Parquet file is written a row group at a time: services/export.)
func TestAReplayTakesNoMoreMemoryOfALongLog(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil, "--roles", "api,context")
	recordLongTurns(t, p, 0, 50)
	lines, table := replayPeakMemory(t, p, "jsonl", 50), replayPeakMemory(t, p, "csv", 50)
	recordLongTurns(t, p, 50, 800)
	require.Less(t, replayPeakMemory(t, p, "jsonl", 800)-lines, int64(24<<20))
	require.Less(t, replayPeakMemory(t, p, "csv", 800)-table, int64(24<<20))
}

// recordLongTurns records turns with questions of 64 KB.
func recordLongTurns(t testing.TB, p *stack.Process, from, to int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(32)
	for n := from; n < to; n++ {
		g.Go(func() error {
			random := make([]byte, 32<<10)                                       // which no format makes shorter
			_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(random) // never fails
			body := map[string]any{"request_id": "r", "question_neutral": hex.EncodeToString(random)}
			status, out, err := p.Call(ctx, http.MethodPost, stack.SessionPath(fmt.Sprint("s", n))+"/turns", body)
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("%d %v", status, out["code"])
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// replayPeakMemory returns the most memory that a replay of so many turns took, in bytes. The replay
// follows, so that it is there to be asked: what Linux says of a process that has ended includes its
// parent.
func replayPeakMemory(t testing.TB, p *stack.Process, form string, turns int64) int64 {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	cmd := p.Command(t, "replay", "--follow", "--format", form, "-o", name)
	require.NoError(t, cmd.Start())
	hang.Until(t, func() bool {
		info, err := os.Stat(name)
		return err == nil && info.Size() > turns*64<<10
	})
	most := stack.MemoryOf(t, cmd.Process.Pid, "VmHWM")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	return most
}
