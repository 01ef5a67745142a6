package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
)

// dumping holds the locks that pg_dump holds on all tables until it is done.
func dumping(t testing.TB, a *tables) (done func()) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), a.url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx := must.Get(conn.Begin(t.Context()))(t)
	for _, name := range names {
		must.Get(tx.Exec(t.Context(), "lock table turnledger."+name+" in access share mode"))(t)
	}
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// waitsForLock reports whether somebody waits to have a table of this database alone.
func (a *tables) waitsForLock() (waits bool) {
	a.t.Helper()
	require.NoError(a.t, a.pool.QueryRow(a.t.Context(), `select exists (select from pg_locks l
		join pg_database d on d.oid = l.database where d.datname = current_database()
		and l.mode = 'AccessExclusiveLock' and l.locktype = 'relation' and not l.granted)`).Scan(&waits))
	return waits
}

// untilLock waits until somebody waits for a lock.
func (a *tables) untilLock() {
	a.t.Helper()
	hang.Until(a.t, a.waitsForLock, "nobody waits for a lock")
}

// reads fails if a reader of the sessions is not answered at once, even on a slow machine.
func (a *tables) reads() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Second)
	defer cancel()
	require.NoError(a.t, pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "lock table turnledger.projection_checkpoints in access share mode; "+
			"select session_id from turnledger.sessions")
		return err
	}), "a reader waits behind somebody who waits for a lock")
}

// goesOn shows that readers are answered while a change of the tables waits for a dump, and that it is made then.
func (a *tables) goesOn(change func(context.Context) error) {
	a.t.Helper()
	done, changed := dumping(a.t, a), make(chan error, 1)
	go func() { changed <- change(a.t.Context()) }()
	a.untilLock()
	a.reads()
	hang.Until(a.t, func() bool { return !a.waitsForLock() })
	pause := time.Now()
	a.untilLock()
	require.Greater(a.t, time.Since(pause), 2*time.Second, "it comes again as soon as it has given up")
	a.reads()
	require.Empty(a.t, changed)
	done()
	require.NoError(a.t, <-changed)
	a.reads()
}

// A rebuild whose tables are to take the place of others waits for a dump, and readers wait for neither.
//
//conformance:c3
func TestReadersGoOnWhileASwapWaitsForADump(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	a := filled(t, log, 100)
	g := must.Get(a.NewGeneration(t.Context()))(t)
	claim(t, log, g).all(100)
	a.goesOn(func(ctx context.Context) error { return g.Swap(ctx, projections.ReachFormer) })
	require.NoError(t, g.Drop(t.Context()))
}
