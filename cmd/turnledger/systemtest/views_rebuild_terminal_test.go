package systemtest_test

import (
	"errors"
	"io"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// rebuildOnATerminal: there `projections rebuild` asks before it begins and shows a bar with rate and ETA. Ctrl-C ends
// the waiting; the server goes on with the rebuild.
func rebuildOnATerminal(t *testing.T, p *stack.Process, pg string) {
	t.Helper()
	reader, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	read, err := reader.Begin(t.Context())
	require.NoError(t, err)
	_, err = read.Exec(t.Context(), "select from turnledger.projection_checkpoints") // the swap waits for it
	require.NoError(t, err)

	look := onTerminal(t, "projections", "rebuild", "audit", "--url", p.URL)
	look.says(t, `Rebuild audit from the log\? .*\[y/N\]`)
	look.types(t, "y\n")
	look.says(t, `rebuild audit +100% .*\(9/9, .* events/s\)`)
	look.types(t, "\x03")
	require.Equal(t, stack.ExitFailed, look.ended(t), look.screen.String())
	require.Regexp(t, `turnledger: stopped waiting; the rebuild goes on in the server: `+
		`turnledger projections list shows how far, projections rebuild --cancel breaks it off\r\n$`,
		look.screen.String())

	require.NoError(t, read.Rollback(t.Context()))
	require.NoError(t, reader.Close(t.Context()))
	hang.Until(t, func() bool {
		_, out, _ := p.Run(t, "projections", "list")
		return servedAsSecond.MatchString(out)
	})

	look = onTerminal(t, "projections", "rebuild", "audit", "--url", p.URL)
	look.says(t, `\[y/N\]`)
	look.types(t, "\n")
	require.Equal(t, stack.ExitFailed, look.ended(t), look.screen.String())
	require.Contains(t, look.screen.String(), "not rebuilt")
}

var servedAsSecond = regexp.MustCompile(`(?m)^audit .* live +2 *$`)

// terminal is a command that runs on a pseudo-terminal.
type terminal struct {
	cmd    *exec.Cmd
	screen *printed.Buffer
	keys   io.Writer
	over   chan struct{}
}

func onTerminal(t testing.TB, args ...string) *terminal {
	t.Helper()
	path := stack.Binary(t)
	cmd := exec.Command(path, args...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	out := &terminal{cmd: cmd, screen: &printed.Buffer{}, keys: tty, over: make(chan struct{})}
	go func() {
		defer close(out.over)
		_, err := io.Copy(out.screen, tty)
		if !errors.Is(err, syscall.EIO) { // what a terminal says whose last process has gone
			t.Log(err)
		}
	}()
	return out
}

func (s *terminal) says(t testing.TB, pattern string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Regexp(c, pattern, s.screen.String()) },
		hang.Limit, 10*time.Millisecond)
}

func (s *terminal) types(t testing.TB, keys string) {
	t.Helper()
	_, err := io.WriteString(s.keys, keys)
	require.NoError(t, err)
}

// ended returns the exit status.
func (s *terminal) ended(t testing.TB) int {
	t.Helper()
	var status *exec.ExitError
	if err := s.cmd.Wait(); err != nil {
		require.ErrorAs(t, err, &status)
	}
	<-s.over
	return s.cmd.ProcessState.ExitCode()
}
