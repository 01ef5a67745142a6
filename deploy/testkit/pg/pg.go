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
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

// Variable names the URL of a server for the tests of all processes.
const Variable = "TURNLEDGER_TEST_POSTGRES"

// shared is the server that all tests of this process use. It must outlive every test, so it belongs to none.
var shared cluster

// URL returns an empty database for t, which loses all when t ends, even if a client is still connected. Safe for
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
	return run(t, localpg.Config{DataDir: t.TempDir(), Fast: true})
}

// run runs a server until t ends.
func run(t testing.TB, cfg localpg.Config) *localpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	srv := must.Get(localpg.Start(ctx, cfg))(t)
	t.Cleanup(func() { assert.NoError(t, srv.Stop(context.WithoutCancel(t.Context()))) })
	return srv
}

// StartTLS runs a server for t alone that also listens on a port of 127.0.0.1, with TLS only. It accepts clients with a
// certificate that the authority has signed for their role. The role is turnledger. The returned address does not name
// the files.
func StartTLS(t testing.TB, ca, cert, key string) (address string) {
	t.Helper()
	port, dir := ports.Free(t), t.TempDir()
	cfg := localpg.Config{DataDir: dir, Fast: true}
	// A first start makes the cluster's folder, for the files.
	require.NoError(t, run(t, cfg).Stop(t.Context()))
	for name, from := range map[string]string{"tls.ca": ca, "tls.cert": cert, "tls.key": key} {
		require.NoError(t, giveTo(filepath.Join(dir, "cluster"), name, from))
	}
	cfg.Settings = []string{"listen_addresses=127.0.0.1", "ssl=on", "ssl_ca_file=tls.ca", "ssl_cert_file=tls.cert",
		"ssl_key_file=tls.key"}
	cfg.Access = []string{"hostssl all turnledger 127.0.0.1/32 cert"}
	cfg.Port = port
	run(t, cfg)
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
	dirPrefix = "turnledger-pgtest-"
	// abandonedAfter keeps sweep from a new folder that its process has not locked yet.
	abandonedAfter = 10 * time.Minute
)

// cluster is a server with the databases of the tests.
type cluster struct {
	once sync.Once
	url  string
	dir  string
	srv  *localpg.Server
	err  error

	mu   sync.Mutex
	made int
	free []string // databases that other tests have left, and that are empty
}

func (c *cluster) start(ctx context.Context) {
	if c.url = os.Getenv(Variable); c.url != "" {
		return
	}
	sweep(os.TempDir())
	if c.dir, c.err = os.MkdirTemp("", dirPrefix); c.err != nil {
		return
	}
	c.srv, c.err = localpg.Start(ctx, localpg.Config{DataDir: c.dir, Fast: true,
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
	if c.dir == "" {     // the server is not ours, and goes on
		for _, name := range c.free {
			if err := c.exec(context.Background(), c.url, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				return err
			}
		}
		return nil
	}
	if c.srv != nil {
		if err := c.srv.Stop(context.Background()); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.dir)
}

func (c *cluster) database(t testing.TB) (address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	c.once.Do(func() { c.start(ctx) })
	require.NoError(t, c.err)
	name, err := c.take(ctx)
	require.NoError(t, err, "make a database for the test")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang.Limit)
		defer cancel()
		if assert.NoError(t, c.empty(ctx, name), "empty the test's database") {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.free = append(c.free, name)
		}
	})
	return c.address(name)
}

// address returns the URL of a database.
func (c *cluster) address(name string) string {
	u, err := url.Parse(c.url)
	if err != nil {
		return c.url // the first connection says what is wrong with it
	}
	u.Path = "/" + name
	return u.String()
}

// take returns an empty database. One that another test has left costs less than a new one, of some 300 files.
func (c *cluster) take(ctx context.Context) (name string, err error) {
	c.mu.Lock()
	if n := len(c.free); n > 0 {
		name, c.free = c.free[n-1], c.free[:n-1]
		c.mu.Unlock()
		return name, nil
	}
	c.made++
	name = fmt.Sprintf("test_%d_%d", os.Getpid(), c.made)
	c.mu.Unlock()
	return name, c.exec(ctx, c.url, "CREATE DATABASE "+name)
}

// empty ends all connections to a database, and removes all that is in it.
func (c *cluster) empty(ctx context.Context, name string) error {
	err := c.exec(ctx, c.url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'")
	if err != nil {
		return err
	}
	return c.exec(ctx, c.address(name), `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
			EXECUTE format('DROP SCHEMA %I CASCADE', name);
		END LOOP;
		CREATE SCHEMA public AUTHORIZATION pg_database_owner;
		GRANT USAGE ON SCHEMA public TO public;
	END $$`)
}

func (*cluster) exec(ctx context.Context, address, sql string) error {
	conn, err := pgx.Connect(ctx, address)
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
