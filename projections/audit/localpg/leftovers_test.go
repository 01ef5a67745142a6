package localpg_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

func TestStartAfterItsProcessWasKilled(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	for want := range 3 {
		cmd, lines := helper(t, dir)
		require.True(t, lines.Scan())
		url := lines.Text()
		require.Contains(t, url, "postgres://", "the helper's server runs")
		if want == 0 {
			exec1(t, url, "CREATE TABLE kept (n int)")
		}
		exec1(t, url, "INSERT INTO kept VALUES (1)")
		pid := postmaster(t, dir)
		require.NoError(t, cmd.Process.Kill())

		srv := must.Get(localpg.Start(limit(t), fast(dir)))(t)
		require.NotEqual(t, pid, postmaster(t, dir), "our own server, not the orphan")
		require.Equal(t, want+1, count(t, srv.URL()))
		require.NoError(t, srv.Stop(limit(t)))
	}
}

func TestServerDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	cmd, lines := helper(t, dir)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), "postgres://")
	require.NoError(t, cmd.Process.Kill())
	pidFile := filepath.Join(dir, "cluster", "postmaster.pid")
	hang.Until(t, func() bool {
		_, err := os.Lstat(pidFile)
		return err != nil
	}, "it goes the clean way")
	start(t, fast(dir))
	text := must.Get(os.ReadFile(filepath.Join(dir, "server.log")))(t)
	require.NotContains(t, string(text), "was not properly shut down")
}

// TestStartAfterItWasKilledWhileMakingTheCluster kills the process at several points of initdb, known by what lies
// there.
func TestStartAfterItWasKilledWhileMakingTheCluster(t *testing.T) {
	t.Parallel()
	for _, landmark := range []string{"", "PG_VERSION", "base/1/2619", "base/5"} {
		t.Run("at "+landmark, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd, _ := helper(t, dir)
			awaitFile(t, filepath.Join(dir, "cluster.new-*", landmark), filepath.Join(dir, "cluster", landmark))
			require.NoError(t, cmd.Process.Kill())
			srv := start(t, fast(dir))
			exec1(t, srv.URL(), "CREATE TABLE kept (n int)")
			requireNoHalves(t, dir)
		})
	}
}

func TestStartThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := localpg.Start(ctx, fast(dir))
		failed <- err
	}()
	awaitFile(t, filepath.Join(dir, "cluster.new-*", "base/1"))
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	requireNoHalves(t, dir)
	require.NoDirExists(t, filepath.Join(dir, "cluster"))
	start(t, fast(dir))
}

func TestStartWhenTheNumberInThePidFileWasGivenToAnother(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"a process of the same user": {"sleep", "300"},
		"ourselves":                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := localpg.Folder(t)
			srv := start(t, fast(dir))
			exec1(t, srv.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
			file := filepath.Join(dir, "cluster", "postmaster.pid")
			text := must.Get(os.ReadFile(file))(t)
			old := postmaster(t, dir)
			require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
			requireClosed(t, srv.Done())

			taken := os.Getpid()
			if command != nil {
				taken = runAsOwner(t, file, command...)
			}
			_, rest, _ := strings.Cut(string(text), "\n")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "%d\n%s", taken, rest), 0o600))
			require.NoError(t, srv.Restart(limit(t)))
			require.Equal(t, 1, count(t, srv.URL()))
			require.NoError(t, syscall.Kill(taken, 0), "the other process was left alone")
		})
	}
}

func TestStartWithAnEmptyPidFile(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	srv := start(t, fast(dir))
	require.NoError(t, srv.Stop(limit(t)))
	// as PostgreSQL leaves it
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cluster", "postmaster.pid"), nil, 0o644))
	require.NoError(t, srv.Restart(limit(t)))
}

// TestStartRefusesAClusterThatSomeoneElseRuns: a server that an operator started by hand does not bear our mark, so it
// is left alone, and PostgreSQL's own interlock keeps a second one off the files.
func TestStartRefusesAClusterThatSomeoneElseRuns(t *testing.T) {
	t.Parallel()
	dir, sockets := localpg.Folder(t), openDir(t)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // a server that we did not start has to get there
	srv := start(t, fast(dir))
	line := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", postmaster(t, dir))))(t)
	program, _, _ := strings.Cut(string(line), "\x00")
	require.NoError(t, srv.Stop(limit(t)))

	cluster := filepath.Join(dir, "cluster")
	require.NoError(t, os.Chmod(sockets, 0o777)) // another user's server puts its socket there
	pid := runAsOwner(t, filepath.Join(cluster, "PG_VERSION"), program, "-D", cluster, "-c", "listen_addresses=", "-k",
		sockets)
	awaitFile(t, filepath.Join(sockets, ".s.PGSQL.5432"))
	require.ErrorContains(t, srv.Restart(limit(t)), "still in use")
	require.NoError(t, syscall.Kill(pid, 0), "it was left alone")
}

// runAsOwner runs a command as the user that owns file, without any tie to this process, till the end of the test.
func runAsOwner(t *testing.T, file string, command ...string) int {
	t.Helper()
	info := must.Get(os.Stat(file))(t)
	st := info.Sys().(*syscall.Stat_t)
	cmd := exec.Command(command[0], command[1:]...) // of this test; killed below
	cmd.Dir = "/"
	if int(st.Uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGQUIT); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// awaitFile waits until one of the patterns matches.
func awaitFile(t *testing.T, patterns ...string) {
	t.Helper()
	hang.Until(t, func() bool {
		for _, p := range patterns {
			if found, _ := filepath.Glob(p); len(found) > 0 {
				return true
			}
		}
		return false
	})
}

func requireNoHalves(t *testing.T, dir string) {
	t.Helper()
	require.Empty(t, must.Get(filepath.Glob(filepath.Join(dir, "cluster.new-*")))(t))
}
