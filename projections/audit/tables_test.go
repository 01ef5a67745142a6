package audit_test

import (
	"context"
	"net/url"
	"testing"

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

// Tables that are made again, and of which one can't be made, would be taken for all by the next claim.
func TestTablesAreMadeAgainAllOrNone(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	a.exec("drop schema turnledger cascade; create schema turnledger; " +
		"create table turnledger.projection_checkpoints ()")
	must.Fail(a.Served(t.Context()))(t, audit.ErrUnavailable)
	a.exec("drop table turnledger.projection_checkpoints")
	must.Get(a.Claim(t.Context(), 0))(t)
	require.NoError(t, must.Err(a.Served(t.Context())), "a table is missing")
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	base, strange, other, unnamed := pg.URL(t), pg.URL(t), pg.URL(t), pg.URL(t)
	run(t, base, "create database latin encoding 'LATIN1' locale 'C' template template0")
	t.Cleanup(func() { run(t, base, "drop database latin with (force)") })
	run(t, strange, "set role none; do $$ begin if not exists (select from pg_roles where rolname = 'nobody_much') "+
		"then create role nobody_much; end if; end $$; grant nobody_much to current_user")
	openWith(t, audit.Config{URL: other}).exec("update turnledger.generation set format = 99")
	openWith(t, audit.Config{URL: unnamed}).exec("alter table turnledger.generation drop column format")
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
		"tables that name no version": {audit.Config{URL: unnamed}, audit.ErrMissing,
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

// A process waits for another one that makes the tables, but not for a server that takes no connection any more.
func TestAnotherThatMakesTheTablesIsWaitedFor(t *testing.T) {
	t.Parallel()
	url := pg.URL(t)
	tx := must.Get(must.Get(pgx.Connect(t.Context(), url))(t).Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended('turnledger.audit', 0))"))(t)
	a := must.Get(audit.Look(t.Context(), audit.Config{URL: url}))(t)
	t.Cleanup(a.Close)
	made := make(chan error, 1)
	go func() { made <- a.Prepare(t.Context()) }()
	other := must.Get(pgx.Connect(t.Context(), url))(t)
	hang.Until(t, func() (waits bool) {
		require.NoError(t, other.QueryRow(t.Context(), `select exists (select from pg_locks l
			join pg_database d on d.oid = l.database where d.datname = current_database()
			and l.locktype = 'advisory' and not l.granted)`).Scan(&waits))
		return waits
	})
	require.Empty(t, made)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-made)
}

// What Prepare asks is bounded.
func TestTablesThatAreLockedAreTriedAgainLater(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 10)
	tx := must.Get(must.Get(pgx.Connect(t.Context(), a.url))(t).Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), "lock table turnledger.generation in access exclusive mode"))(t)
	require.ErrorIs(t, a.Prepare(t.Context()), audit.ErrUnavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, a.Prepare(t.Context()))
}
