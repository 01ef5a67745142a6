package nats

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
)

// BegunAnew is a server process that restarts JetStream on command.
type BegunAnew struct {
	Conn *nats.Conn
	in   io.Writer
	out  *bufio.Reader
}

// StartBegunAnew starts such a server on an empty store, and connects to it.
func StartBegunAnew(t testing.TB) *BegunAnew {
	t.Helper()
	built := &gobuild.Program{
		Name: "begunanew", Package: "github.com/turnledger/turnledger/deploy/testkit/nats/begunanew",
	}
	t.Cleanup(built.Remove)
	path, err := built.Path()
	require.NoError(t, err)
	cmd := exec.Command(path, t.TempDir())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &BegunAnew{in: in, out: bufio.NewReader(out)}
	s.Conn, err = nats.Connect(s.line(t))
	require.NoError(t, err)
	t.Cleanup(s.Conn.Close)
	return s
}

// Begin stops JetStream, waits for the duration away, and starts it again.
func (s *BegunAnew) Begin(t testing.TB, away time.Duration) {
	t.Helper()
	_, err := fmt.Fprintln(s.in, away.Milliseconds())
	require.NoError(t, err)
	require.Equal(t, "begun", s.line(t))
}

func (s *BegunAnew) line(t testing.TB) string {
	t.Helper()
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}
