package localpg_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

func TestServerKeepsItsDataOverStopAndStart(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	for _, cfg := range []localpg.Config{fast(dir), {DataDir: dir}} { // both modes serve one cluster
		srv := start(t, cfg)
		exec1(t, srv.URL(), "CREATE TABLE IF NOT EXISTS kept (n int); INSERT INTO kept VALUES (1)")
		require.NoError(t, srv.Stop(limit(t)))
		require.NoError(t, srv.Stop(limit(t)), "a second stop does nothing")
		requireClosed(t, srv.Done())
	}
	srv := start(t, fast(dir))
	require.Equal(t, 2, count(t, srv.URL()))
}

func TestServerRunsUnprivilegedAndApart(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	srv := start(t, fast(dir))
	pid := postmaster(t, dir)
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/proc/"+strconv.Itoa(pid), &st))
	require.NotZero(t, st.Uid, "never as root")
	sid := must.Get(unix.Getsid(pid))(t)
	require.Equal(t, pid, sid, "a session of its own: Ctrl-C on our terminal does not reach it")

	conn := must.Get(pgx.Connect(limit(t), srv.URL()))(t)
	defer func() { require.NoError(t, conn.Close(limit(t))) }()
	for setting, want := range map[string]string{"listen_addresses": "", "server_encoding": "UTF8", "lc_collate": "C",
		"TimeZone": "UTC"} {
		var got string
		require.NoError(t, conn.QueryRow(limit(t), "SELECT current_setting($1)", setting).Scan(&got))
		require.Equal(t, want, got, setting)
	}
	info := must.Get(os.Stat(conn.Config().Host))(t)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "nobody else reaches the socket")
}

func TestServerRefusesASecondOneOnItsDirectory(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	first := start(t, fast(dir))
	must.Fail(localpg.Start(limit(t), fast(dir)))(t, localpg.ErrInUse)
	exec1(t, first.URL(), "CREATE TABLE kept (n int)")
}

func TestServerWorksBelowALongPathThatOnlyWeCanEnter(t *testing.T) {
	t.Parallel()
	private := filepath.Join(t.TempDir(), "private [odd] \\name*")
	require.NoError(t, os.Mkdir(private, 0o700))
	dir := filepath.Join(private, strings.Repeat("long/", 60))
	srv := start(t, fast(dir))
	exec1(t, srv.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	require.NoError(t, srv.Restart(limit(t)))
	require.Equal(t, 1, count(t, srv.URL()))
}

func TestServerThatCrashedRecovers(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	srv := start(t, fast(dir))
	url := srv.URL()
	exec1(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")

	require.NoError(t, syscall.Kill(postmaster(t, dir), syscall.SIGKILL))
	requireClosed(t, srv.Done())
	require.NoError(t, srv.Restart(limit(t)))
	require.Equal(t, 1, count(t, url))

	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, srv.Stop(now), context.Canceled, "stopped without a checkpoint")
	require.NoError(t, srv.Restart(limit(t)))
	require.Equal(t, url, srv.URL())
	require.Equal(t, 1, count(t, url))
}

func TestServerLogHoldsNoText(t *testing.T) {
	t.Parallel()
	srv := start(t, fast(localpg.Folder(t)))
	conn := must.Get(pgx.Connect(limit(t), srv.URL()))(t)
	const marker = "SECRET-OF-A-TURN"
	exec1(t, srv.URL(), "CREATE TABLE kept (n int, t text UNIQUE CHECK (length(t) > 1))")
	for _, sql := range []string{
		"SELECT '" + marker + "'::uuid", "SELECT '" + marker, "INSERT INTO kept VALUES ('" + marker + "')",
		"INSERT INTO kept VALUES (1, '" + marker + "'), (2, '" + marker + "')", "SELECT '" + marker + "'::jsonb",
		"DO $$ BEGIN RAISE WARNING '" + marker + "'; RAISE EXCEPTION '" + marker + "'; END $$",
	} {
		require.Error(t, must.Err(conn.Exec(limit(t), sql)))
	}
	require.Error(t, must.Err(conn.Exec(limit(t), "SELECT $1::int", marker)))
	require.Error(t, must.Err(conn.CopyFrom(limit(t), pgx.Identifier{"kept"}, []string{"n", "t"},
		pgx.CopyFromRows([][]any{{1, marker}, {2, marker}}))))
	require.NoError(t, conn.Close(limit(t)))
	text := must.Get(os.ReadFile(srv.LogFile()))(t)
	require.Contains(t, string(text), "ready to accept connections")
	require.NotContains(t, string(text), marker)
}

func TestStartSaysWhatToDo(t *testing.T) {
	t.Parallel()
	t.Run("without PostgreSQL", func(t *testing.T) {
		t.Parallel()
		_, err := localpg.Start(limit(t), localpg.Config{DataDir: t.TempDir(), BinDir: t.TempDir()})
		require.ErrorIs(t, err, localpg.ErrNotInstalled)
		require.Regexp(t, "run `.*install.*`", err)
	})
	t.Run("without a data directory", func(t *testing.T) {
		t.Parallel()
		require.Error(t, must.Err(localpg.Start(limit(t), localpg.Config{})))
	})
	t.Run("on a cluster of another version", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "cluster"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cluster", "PG_VERSION"), []byte("9\n"), 0o600))
		must.Fail(localpg.Start(limit(t), fast(dir)))(t, localpg.ErrForeignCluster)
	})
	t.Run("on a folder that holds something else", func(t *testing.T) {
		t.Parallel()
		photos := filepath.Join(t.TempDir(), "cluster", "photos")
		require.NoError(t, os.MkdirAll(photos, 0o700))
		must.Fail(localpg.Start(limit(t), fast(filepath.Join(photos, "../.."))))(t, localpg.ErrForeignCluster)
		require.DirExists(t, photos)
	})
	t.Run("when the cluster is damaged, with the server's own words", func(t *testing.T) {
		t.Parallel()
		dir := localpg.Folder(t)
		srv := start(t, fast(dir))
		require.NoError(t, srv.Stop(limit(t)))
		require.NoError(t, os.Remove(filepath.Join(dir, "cluster", "global", "pg_control")))
		require.ErrorContains(t, srv.Restart(limit(t)), "pg_control")
		_, err := localpg.Start(limit(t), fast(dir))
		require.NotErrorIs(t, err, localpg.ErrInUse, "a failed start lets go of the directory")
	})
}

// postmaster reads the number of the server process.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(dir, "cluster", "postmaster.pid")))(t)
	first, _, _ := strings.Cut(string(text), "\n")
	return must.Get(strconv.Atoi(first))(t)
}

func requireClosed(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hang.Limit):
		require.FailNow(t, "the server did not end")
	}
}

func TestStartAfterItsProcessWasKilled(t *testing.T) {
	t.Parallel()
	dir := localpg.Folder(t)
	for want := range 2 {
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
	landmarks := []string{"PG_VERSION", "base/5", "", "base/1/2619"}
	if os.Getenv("TURNLEDGER_TORTURE") == "" {
		landmarks = landmarks[:2] // each is an initdb
	}
	for _, landmark := range landmarks {
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
	st := must.Get(os.Stat(file))(t).Sys().(*syscall.Stat_t)
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

// helperDir, when set, turns this test binary into a process that runs a server on that directory until it is killed.
const helperDir = "LOCALPG_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		srv, err := localpg.Start(context.Background(), localpg.Config{DataDir: dir, Fast: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(srv.URL())
		select {}
	}
	leaks.VerifyTestMain(tests{m})
}

type tests struct{ *testing.M }

func (m tests) Run() int {
	defer localpg.RemoveMade()
	return m.M.Run()
}

// helper starts a process that runs a server on dir. The URL comes when that server answers.
func helper(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0]) // ourselves; killed below
	cmd.Env = append(os.Environ(), helperDir+"="+dir)
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func start(t *testing.T, cfg localpg.Config) *localpg.Server {
	t.Helper()
	srv := must.Get(localpg.Start(limit(t), cfg))(t)
	t.Cleanup(func() { require.NoError(t, srv.Stop(context.Background())) })
	return srv
}

func fast(dir string) localpg.Config { return localpg.Config{DataDir: dir, Fast: true} }

// limit bounds one step of a test.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	t.Cleanup(cancel)
	return ctx
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn := must.Get(pgx.Connect(limit(t), url))(t)
	must.Get(conn.Exec(limit(t), sql))(t)
	require.NoError(t, conn.Close(limit(t)))
}

func count(t *testing.T, url string) (n int) {
	t.Helper()
	conn := must.Get(pgx.Connect(limit(t), url))(t)
	require.NoError(t, conn.QueryRow(limit(t), "SELECT count(*) FROM kept").Scan(&n))
	require.NoError(t, conn.Close(limit(t)))
	return n
}

// openDir is a temporary directory that every user can enter; that of t.TempDir is closed.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // open on purpose
	return dir
}
