package localpg_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

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
