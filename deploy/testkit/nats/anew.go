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
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	path := must.Get(built.Path())(t)
	cmd := exec.Command(path, t.TempDir())
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &BegunAnew{in: in, out: bufio.NewReader(out)}
	s.Conn = must.Get(nats.Connect(s.line(t)))(t)
	t.Cleanup(s.Conn.Close)
	return s
}

// Begin stops JetStream, waits for the duration away, and starts it again.
func (s *BegunAnew) Begin(t testing.TB, away time.Duration) {
	t.Helper()
	must.Get(fmt.Fprintln(s.in, away.Milliseconds()))(t)
	require.Equal(t, "begun", s.line(t))
}

func (s *BegunAnew) line(t testing.TB) string {
	t.Helper()
	line := must.Get(s.out.ReadString('\n'))(t)
	return strings.TrimSpace(line)
}
