// Package pg gives a test a private PostgreSQL database, on a real server: that of TURNLEDGER_TEST_POSTGRES, which make
// starts once for all test processes (package shared), or else one for each test process, started when the first test
// asks (about a second), stopped at the end.
//
//	func TestMain(m *testing.M) { leaks.VerifyTestMain(pg.Runner(m)) }
//
//	func TestRows(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), pg.URL(t))
//		…
//
// A missing PostgreSQL fails the test and names the command that installs it; nothing is skipped. A process that ends
// without Runner (a time-out, kill -9) takes its server with it on Linux; its files are removed by a later run.
package pg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

// Variable names the URL of a server for the tests of all processes.
const Variable = "TURNLEDGER_TEST_POSTGRES"

// shared is the server that all tests of this process use. It must outlive every test, so it belongs to none.
var shared cluster

// URL makes an empty database for t. The database is dropped when t ends, even if a client is still connected. Safe for
// parallel tests.
func URL(t testing.TB) string {
	t.Helper()
	return shared.database(t)
}

// Start runs a server for t alone, for a test that stops it, restarts it (its URL stays) or crashes it (Stop with a
// context that has ended). The server is fast, but would lose data if the machine crashed. A benchmark that measures
// PostgreSQL's own durability must call localpg.Start instead.
func Start(t testing.TB) *localpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	srv, err := localpg.Start(ctx, localpg.Config{DataDir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// StartTLS runs a server for t alone that also listens on a port of 127.0.0.1, with TLS only. It accepts clients with a
// certificate that the authority has signed for their role. The role is turnledger. The returned address does not name
// the files.
func StartTLS(t testing.TB, ca, cert, key string) (address string) {
	t.Helper()
	port, dir := ports.Free(t), t.TempDir()
	cfg := localpg.Config{DataDir: dir, Fast: true}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	srv, err := localpg.Start(ctx, cfg) // makes the cluster's folder, for the files
	if err == nil {
		err = srv.Stop(ctx)
	}
	for name, from := range map[string]string{"tls.ca": ca, "tls.cert": cert, "tls.key": key} {
		if err == nil {
			err = giveTo(filepath.Join(dir, "cluster"), name, from)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Settings = []string{"listen_addresses=127.0.0.1", "ssl=on", "ssl_ca_file=tls.ca", "ssl_cert_file=tls.cert",
		"ssl_key_file=tls.key"}
	cfg.Access = []string{"hostssl all turnledger 127.0.0.1/32 cert"}
	cfg.Port = port
	srv, err = localpg.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return "postgres://turnledger@127.0.0.1:" + port + "/turnledger"
}

// giveTo copies a file into a folder. The copy belongs to the folder's owner.
func giveTo(folder, name, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	to := filepath.Join(folder, name)
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return err
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Chown(to, int(owner.Uid), int(owner.Gid))
}

// Runner wraps the tests so that the shared server is stopped after them: for leaks.VerifyTestMain.
func Runner(tests interface{ Run() int }) interface{ Run() int } { return runner{tests} }

type runner struct{ tests interface{ Run() int } }

func (r runner) Run() int {
	code := r.tests.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return max(code, 1)
	}
	return code
}

const (
	startLimit = 2 * time.Minute // for a slow machine that is busy with other packages' tests
	dirPrefix  = "turnledger-pgtest-"
	// abandonedAfter keeps sweep from a new folder that its process has not locked yet.
	abandonedAfter = 10 * time.Minute
)

// cluster is a server with the databases of the tests.
type cluster struct {
	binDir string // empty: the installed one

	once sync.Once
	url  string
	dir  string
	srv  *localpg.Server
	err  error
	last atomic.Int64
}

func (c *cluster) start(ctx context.Context) {
	if c.url = os.Getenv(Variable); c.url != "" && c.binDir == "" {
		return
	}
	sweep(os.TempDir())
	if c.dir, c.err = os.MkdirTemp("", dirPrefix); c.err != nil {
		return
	}
	c.srv, c.err = localpg.Start(ctx, localpg.Config{DataDir: c.dir, Fast: true, BinDir: c.binDir,
		Settings: []string{"max_connections=500"}})
	if c.err == nil {
		c.url = c.srv.URL()
	}
}

// Shared starts a server for the tests of several processes. It is the URL for Variable; stop ends it.
func Shared(ctx context.Context) (url string, stop func() error, err error) {
	var c cluster
	c.once.Do(func() { c.start(ctx) })
	if c.err != nil {
		return "", nil, errors.Join(c.err, c.stop())
	}
	return c.url, c.stop, nil
}

func (c *cluster) stop() error {
	c.once.Do(func() {}) // a later call starts no server
	if c.dir == "" {
		return nil
	}
	if c.srv != nil {
		if err := c.srv.Stop(context.Background()); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.dir)
}

func (c *cluster) database(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c.once.Do(func() { c.start(ctx) })
	if c.err != nil {
		t.Fatal(c.err)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), c.last.Add(1))
	if err := c.exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := c.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func (c *cluster) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// sweep removes the folders of test processes that ended without removing them. A running process holds the lock of its
// folder.
func sweep(temp string) {
	dirs, err := filepath.Glob(filepath.Join(temp, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}
		lock := flock.New(filepath.Join(dir, "lock"))
		if got, err := lock.TryLock(); err == nil && got {
			_ = os.RemoveAll(dir) // fails for another user's folder, which is not ours
			_ = lock.Unlock()
		}
	}
}
