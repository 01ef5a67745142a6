package audit_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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

func TestOpenKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	log := identityLog()
	a := filled(t, log, 10)
	before := a.dump()
	require.Equal(t, before, openIn(t, a.url, "turnledger", log).dump())
}

// Whoever feeds tables that somebody dropped makes them again.
func TestTablesThatAreGoneAreMadeAgain(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	_, err := a.pool.Exec(t.Context(), "drop schema turnledger cascade")
	require.NoError(t, err)
	_, err = a.Applied(t.Context(), 0)
	require.ErrorIs(t, err, audit.ErrUnavailable, "that nothing is there tells nothing")
	before, err := audit.Look(t.Context(), audit.Config{URL: a.url})
	require.NoError(t, err)
	t.Cleanup(before.Close)
	_, err = before.Served(t.Context())
	require.ErrorIs(t, err, audit.ErrUnavailable, "who only looks makes none")
	served, err := a.Served(t.Context())
	require.NoError(t, err)
	require.Empty(t, served.At)
	at, err := a.Applied(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, at.Seq)
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
	a, err := audit.Open(t.Context(), audit.Config{URL: url, Logger: slog.New(h)})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	a.Later(t, "alter table {{.schema}}.questions add later text")
	run(t, url, "drop schema turnledger cascade")
	ctx, end := context.WithCancel(t.Context())
	broken := (func())(end)
	h.do.Store(&broken)
	_, err = a.Served(ctx)
	require.ErrorIs(t, err, audit.ErrUnavailable)
	require.Error(t, ctx.Err(), "the second migration was not come to")
	_, err = a.Claim(t.Context(), 0)
	require.NoError(t, err)
	_, err = a.Served(t.Context())
	require.NoError(t, err, "a table is missing")
}

// A generation is filled beside the served one and takes its name in one step, under the feet of readers.
func TestGenerations(t *testing.T) {
	t.Parallel()
	log := identityLog()
	served := filled(t, log, 10)
	log.add(started("s1", "new"))
	next := openIn(t, served.url, "turnledger_next", log)
	claim(t, log, next).all(100)
	require.NotEqual(t, served.dump(), next.dump())
	want := next.dump()
	_, _, err := served.SessionTurns(t.Context(), "s1", -1)
	require.NoError(t, err)

	require.NoError(t, pgx.BeginFunc(t.Context(), served.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "alter schema turnledger rename to turnledger_old; alter schema "+
			"turnledger_next rename to turnledger")
		return err
	}))
	require.Equal(t, want, served.dump())
	sameSession(t, served, log, "s1")
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	base := pg.URL(t)
	fails := func(t *testing.T, cfg audit.Config, class error, says ...string) {
		t.Helper()
		a, err := audit.Open(t.Context(), cfg)
		if err == nil {
			a.Close()
		}
		require.Error(t, err)
		if class != nil {
			require.ErrorIs(t, err, class)
		}
		for _, s := range says {
			require.ErrorContains(t, err, s)
		}
		require.NotContains(t, err.Error(), "pass-word")
	}
	t.Run("no URL", func(t *testing.T) {
		t.Parallel()
		fails(t, audit.Config{Schema: "Bad-Name"}, nil, "URL", "schema")
	})
	t.Run("no such URL", func(t *testing.T) {
		t.Parallel()
		fails(t, audit.Config{URL: "postgres://u:pass-word@[bad"}, nil, "URL")
	})
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		fails(t, audit.Config{URL: "postgres://u:pass-word@127.0.0.1:1/d"}, audit.ErrUnavailable, "start PostgreSQL",
			"TURNLEDGER_POSTGRES_URL")
	})
	t.Run("no such database", func(t *testing.T) {
		t.Parallel()
		fails(t, audit.Config{URL: withPath(t, base, "/nothing_here")}, audit.ErrMissing, "createdb", "nothing_here")
	})
	t.Run("another encoding", func(t *testing.T) {
		t.Parallel()
		run(t, base, "create database latin encoding 'LATIN1' locale 'C' template template0")
		t.Cleanup(func() { run(t, base, "drop database latin with (force)") })
		fails(t, audit.Config{URL: withPath(t, base, "/latin")}, audit.ErrMissing, "UTF8", "createdb")
	})
	t.Run("no right to make the schema", func(t *testing.T) {
		t.Parallel()
		database := pg.URL(t)
		run(t, database, "set role none; do $$ begin if not exists (select from pg_roles where rolname = "+
			"'nobody_much') then create role nobody_much; end if; end $$;"+
			"grant nobody_much to current_user")
		fails(t, audit.Config{URL: database + "&role=nobody_much"}, audit.ErrMissing, "grant create")
	})
	t.Run("tables of another version", func(t *testing.T) {
		t.Parallel()
		database := pg.URL(t)
		a, err := audit.Open(t.Context(), audit.Config{URL: database})
		require.NoError(t, err)
		a.Close()
		run(t, database, "update turnledger.schema_version set version = 99")
		fails(t, audit.Config{URL: database}, audit.ErrMissing, "another version", "drop schema turnledger cascade")
	})
	t.Run("no such text search configuration", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"klingon", "nowhere.english"} {
			fails(t, audit.Config{URL: base, SearchConfig: name}, audit.ErrMissing, "TURNLEDGER_SEARCH_CONFIG", name,
				"english", "simple")
		}
	})
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		fails(t, audit.Config{URL: pg.URL(t) + "&default_transaction_read_only=on"}, audit.ErrMissing, "read-only")
	})
}

func run(t *testing.T, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), database)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for part := range strings.SplitSeq(sql, ";;") {
		_, err = conn.Exec(context.Background(), part)
		require.NoError(t, err)
	}
}

func withPath(t *testing.T, database, path string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.Path = path
	return u.String()
}
