package localpg_test

import (
	"context"
	"os"
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
