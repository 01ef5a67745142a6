package stack

import (
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
)

// Process is a running turnledger.
type Process struct {
	Cmd *exec.Cmd
	URL string
	Log *printed.Buffer // standard error
	Out *printed.Buffer // standard output
	// Client makes the calls; nil: http.DefaultClient.
	Client *http.Client
}

// FreeAddress returns an unused loopback address that stays free until the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return ports.FreeAddress(t)
}

// DataDir returns a new folder that a PostgreSQL of another user may enter. It goes after the test, with what a process
// that was killed has staged in memory.
func DataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tl-data-") //nolint:usetesting // a folder of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Name() != "turnledger.staging" {
				return nil // a folder may go while it is walked
			}
			if staging, err := os.ReadFile(path); err == nil {
				_ = os.RemoveAll(string(staging))
			}
			return nil
		})
		_ = os.RemoveAll(dir)
	})
	return dir
}

// ServeNATS returns the settings of a process whose NATS other processes use at the address.
func ServeNATS(address string) []string {
	return []string{"TURNLEDGER_NATS_LISTEN=" + address, "TURNLEDGER_SYNC=always"}
}

// JoinNATS returns the settings of a process that uses another process's NATS.
func JoinNATS(address string) []string {
	return []string{"TURNLEDGER_NATS_URL=nats://" + address, "TURNLEDGER_NATS_LISTEN="}
}

// Start runs the binary and waits until it is ready.
func Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := Launch(t, env, args...)
	p.WaitReady(t)
	return p
}

// Serve starts a server on a data directory of its own.
func Serve(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return Start(t, env, append([]string{"serve", "--data-dir", DataDir(t)}, args...)...)
}

// Launch runs the binary at a free address and returns at once.
func Launch(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return LaunchAt(t, FreeAddress(t), env, args...)
}

// LaunchAt runs the binary at an address and returns at once.
func LaunchAt(t testing.TB, address string, env []string, args ...string) *Process {
	t.Helper()
	return LaunchProgram(t, Binary(t), address, env, args...)
}

// LaunchProgram runs a binary of another version at an address and returns at once.
func LaunchProgram(t testing.TB, binary, address string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{URL: "http://" + address, Log: &printed.Buffer{}, Out: &printed.Buffer{}}
	p.Cmd = exec.Command(binary, append(args, "--listen", address)...)
	// On a busy machine a memory would miss the time that a prompt waits for it, and the prompt would be another one.
	own := []string{"TURNLEDGER_NATS_LISTEN=" + FreeAddress(t), "TURNLEDGER_MEMORY_BUDGET=10s"}
	p.Cmd.Env = append(environment(), append(own, env...)...)
	p.Cmd.Stdout, p.Cmd.Stderr = p.Out, p.Log
	require.NoError(t, p.Cmd.Start())
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		_, _ = p.Cmd.Process.Wait()
	})
	return p
}

// WaitReady waits until the process reports that it is ready.
func (p *Process) WaitReady(t testing.TB) {
	t.Helper()
	hang.Until(t, func() bool {
		resp, err := http.Get(p.URL + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "not ready: %s", p.Log)
}

// WaitReadyOr waits until the process is ready or has exited, and reports whether it is ready.
func (p *Process) WaitReadyOr(t testing.TB, exited <-chan error) bool {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		select {
		case err := <-exited:
			require.Error(t, err, "%s", p.Log)
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if resp, err := http.Get(p.URL + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	require.FailNow(t, "neither ready nor exited", "%s", p.Log)
	return false
}

// WaitLog waits until the process's log matches a pattern. A line may arrive after the event that it reports, since it
// comes through a pipe.
func (p *Process) WaitLog(t testing.TB, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	hang.Until(t, func() bool { return wanted.MatchString(p.Log.String()) }, "no %q in %s", pattern, p.Log)
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Kill())
	_ = p.Cmd.Wait()
}

// Stop sends SIGINT and requires that the process ends with status 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.Cmd.Wait(), "%s", p.Log)
}
