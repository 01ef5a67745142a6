package audit_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/projections/audit"
)

func TestOpenBySeveralAtOnce(t *testing.T) {
	t.Parallel()
	url := pg.URL(t)
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			a, err := audit.Open(t.Context(), audit.Config{URL: url})
			if err == nil {
				a.Close()
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// Whoever feeds tables that somebody dropped makes them again.
func TestTablesThatAreGoneAreMadeAgain(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	a.exec("drop schema turnledger cascade")
	must.Fail(a.Applied(t.Context(), 0))(t, audit.ErrUnavailable, "that nothing is there tells nothing")
	require.ErrorIs(t, must.Err(a.SessionTurns(t.Context(), "s1", 1)), audit.ErrUnavailable)
	before := must.Get(audit.Look(t.Context(), audit.Config{URL: a.url}))(t)
	t.Cleanup(before.Close)
	must.Fail(before.Served(t.Context()))(t, audit.ErrUnavailable, "who only looks makes none")
	require.Empty(t, must.Get(a.Served(t.Context()))(t).At)
	require.Zero(t, must.Get(a.Applied(t.Context(), 0))(t).Seq)
}

// atMigration calls do when a migration begins, once it has been armed.
type atMigration struct {
	slog.Handler
	version int64
	do      atomic.Pointer[func()]
}

func (h *atMigration) Enabled(context.Context, slog.Level) bool { return true }

func (h *atMigration) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if do := h.do.Load(); a.Key == "version" && a.Value.Int64() == h.version && do != nil {
			(*do)()
		}
		return true
	})
	return nil
}

// Tables that are made again, and of which a connection that breaks leaves some out, would
// be taken for all by the next claim.
func TestTablesAreMadeAgainAllOrNone(t *testing.T) {
	t.Parallel()
	h := &atMigration{Handler: slog.DiscardHandler, version: 2}
	url := pg.URL(t)
	a := must.Get(audit.Open(t.Context(), audit.Config{URL: url, Logger: slog.New(h)}))(t)
	t.Cleanup(a.Close)
	a.Later(t, "alter table {{.schema}}.questions add later text")
	run(t, url, "drop schema turnledger cascade")
	ctx, end := context.WithCancel(t.Context())
	broken := (func())(end)
	h.do.Store(&broken)
	must.Fail(a.Served(ctx))(t, audit.ErrUnavailable)
	require.Error(t, ctx.Err(), "the second migration was not come to")
	must.Get(a.Claim(t.Context(), 0))(t)
	require.NoError(t, must.Err(a.Served(t.Context())), "a table is missing")
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	base, strange, other := pg.URL(t), pg.URL(t), pg.URL(t)
	run(t, base, "create database latin encoding 'LATIN1' locale 'C' template template0")
	t.Cleanup(func() { run(t, base, "drop database latin with (force)") })
	run(t, strange, "set role none; do $$ begin if not exists (select from pg_roles where rolname = 'nobody_much') "+
		"then create role nobody_much; end if; end $$; grant nobody_much to current_user")
	openWith(t, audit.Config{URL: other}).exec("update turnledger.schema_version set version = 99")
	for name, c := range map[string]struct {
		cfg   audit.Config
		class error
		says  []string
	}{
		"no URL":      {audit.Config{Schema: "Bad-Name"}, nil, []string{"URL", "schema"}},
		"no such URL": {audit.Config{URL: "postgres://u:pass-word@[bad"}, nil, []string{"URL"}},
		"nobody there": {audit.Config{URL: "postgres://u:pass-word@127.0.0.1:1/d"}, audit.ErrUnavailable,
			[]string{"start PostgreSQL", "TURNLEDGER_POSTGRES_URL"}},
		"no such database": {audit.Config{URL: withPath(t, base, "/nothing_here")}, audit.ErrMissing,
			[]string{"createdb", "nothing_here"}},
		"another encoding": {audit.Config{URL: withPath(t, base, "/latin")}, audit.ErrMissing,
			[]string{"UTF8", "createdb"}},
		"no right to make the schema": {audit.Config{URL: strange + "&role=nobody_much"}, audit.ErrMissing,
			[]string{"grant create"}},
		"tables of another version": {audit.Config{URL: other}, audit.ErrMissing,
			[]string{"another version", "drop schema turnledger cascade"}},
		"no such text search configuration": {audit.Config{URL: base, SearchConfig: "klingon"}, audit.ErrMissing,
			[]string{"TURNLEDGER_SEARCH_CONFIG", "klingon", "english", "simple"}},
		"no such schema of a text search configuration": {audit.Config{URL: base, SearchConfig: "nowhere.english"},
			audit.ErrMissing, []string{"TURNLEDGER_SEARCH_CONFIG", "nowhere.english", "english", "simple"}},
		"read-only": {audit.Config{URL: base + "&default_transaction_read_only=on"}, audit.ErrMissing,
			[]string{"read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := audit.Open(t.Context(), c.cfg)
			if err == nil {
				a.Close()
			}
			require.Error(t, err)
			if c.class != nil {
				require.ErrorIs(t, err, c.class)
			}
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
			require.NotContains(t, err.Error(), "pass-word")
		})
	}
}

func run(t *testing.T, database, sql string) {
	t.Helper()
	conn := must.Get(pgx.Connect(context.Background(), database))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	must.Get(conn.Exec(context.Background(), sql))(t)
}

func withPath(t *testing.T, database, path string) string {
	t.Helper()
	u := must.Get(url.Parse(database))(t)
	u.Path = path
	return u.String()
}

// Another process that makes the tables is waited for as long as it takes, and a server that takes no connection any
// more is not.
func TestTablesThatTakeLongAreWaitedFor(t *testing.T) {
	t.Parallel()
	url := pg.URL(t)
	to := newGate(t, url)
	tx := must.Get(must.Get(pgx.Connect(t.Context(), url))(t).Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended('turnledger.audit', 0))"))(t)
	prepare := func() (prepared chan error) {
		a := must.Get(audit.Look(t.Context(), audit.Config{URL: to.url}))(t)
		t.Cleanup(a.Close)
		a.AskEach(100 * time.Millisecond)
		prepared = make(chan error, 1)
		go func() { prepared <- a.Prepare(t.Context()) }()
		return prepared
	}

	waits := prepare()
	hang.Until(t, func() bool { return to.let.Load() >= 6 })
	require.Empty(t, waits, "it was asked, and answers")
	to.silent.Store(true)
	require.ErrorIs(t, <-waits, audit.ErrUnavailable)

	to.silent.Store(false)
	waits = prepare()
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-waits)
}

// What Prepare asks beside a migration is bounded, however long a migration may take.
func TestTablesThatAreLockedAreTriedAgainLater(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	tx := must.Get(must.Get(pgx.Connect(t.Context(), a.url))(t).Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "lock table turnledger.generation in access exclusive mode"))(t)
	require.ErrorIs(t, a.Prepare(t.Context()), audit.ErrUnavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, a.Prepare(t.Context()))
}

// gate is a network before PostgreSQL that can hold back connections that are made from now on.
type gate struct {
	url    string
	let    atomic.Int32
	silent atomic.Bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	cfg := must.Get(pgx.ParseConfig(to))(t)
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	g := &gate{url: fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", cfg.User, l.Addr(), cfg.Database)}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = in.Close() })
			if g.silent.Load() {
				continue
			}
			out, err := net.Dial("unix", filepath.Join(cfg.Host, fmt.Sprint(".s.PGSQL.", cfg.Port)))
			if err != nil {
				t.Error(err)
				return
			}
			g.let.Add(1)
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	})
	return g
}
