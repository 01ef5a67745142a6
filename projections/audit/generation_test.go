package audit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// rebuildOf fills a new generation with a log and swaps it in.
func rebuildOf(t *testing.T, log *journal, a *tables) {
	t.Helper()
	g := must.Get(a.NewGeneration(t.Context()))(t)
	claim(t, log, g).all(100)
	require.NoError(t, g.Swap(t.Context(), projections.ReachFormer))
	require.NoError(t, g.Drop(t.Context()))
}

// Who could read the tables before a rebuild can read them after it, and nobody else.
func TestGrantsGoOverWithARebuild(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	a := filled(t, log, 100)
	analyst, other := fmt.Sprint("analyst_", rand.Uint32()), fmt.Sprint("other_", rand.Uint32())
	a.exec(fmt.Sprintf(`create role %s; create role %s; grant usage on schema turnledger to %[1]s;
		grant select on turnledger.turns, turnledger.answers to %[1]s;
		grant select on turnledger.event_ledger to public`, analyst, other))
	rebuildOf(t, log, a)
	may := func(role, object string) (yes bool) {
		sql := "select has_table_privilege($1, 'turnledger.'||$2, 'select') and has_schema_privilege($1, " +
			"'turnledger', 'usage')"
		require.NoError(t, a.pool.QueryRow(t.Context(), sql, role, object).Scan(&yes))
		return yes
	}
	require.True(t, may(analyst, "turns"))
	require.True(t, may(analyst, "answers"))
	require.True(t, may(analyst, "event_ledger"))
	require.False(t, may(analyst, "questions"))
	require.False(t, may(other, "event_ledger"), "it may not enter the schema")
	a.exec(fmt.Sprintf("drop owned by %s, %s; drop role %[1]s, %[2]s", analyst, other))
}

// A rebuild that would drop somebody else's view or foreign key is refused, and says why.
func TestARebuildUnderSomebodysViewIsRefused(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	a := filled(t, log, 100)
	for _, c := range [][2]string{
		{"create view public.mine as select session_id from turnledger.turns", "drop view public.mine"},
		{"create table public.notes (turn_id uuid references turnledger.questions)", "drop table public.notes"},
	} {
		a.exec(c[0])
		_, err := a.NewGeneration(t.Context())
		require.ErrorIs(t, err, audit.ErrDependent)
		require.ErrorContains(t, err, "make them again")
		a.exec(c[1])
		rebuildOf(t, log, a)
	}
}

// Of two processes one rebuilds at a time. The right goes with its connection: who lost
// it swaps nothing.
func TestTwoProcessesDoNotRebuildAtOnce(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	one := filled(t, log, 100)
	two := openWith(t, audit.Config{URL: one.url, Log: log})
	want := one.dump()
	lost := must.Get(one.NewGeneration(t.Context()))(t)
	claim(t, log, lost).all(100)
	must.Fail(two.NewGeneration(t.Context()))(t, projections.ErrRebuilding)

	two.exec("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and pid <> " +
		"pg_backend_pid() and database = (select oid from pg_database where datname = current_database())")
	hang.Until(t, func() bool {
		won, err := two.NewGeneration(t.Context())
		if err != nil {
			require.ErrorIs(t, err, projections.ErrRebuilding)
			return false
		}
		claim(t, log, won).all(100)
		require.NoError(t, won.Swap(t.Context(), projections.ReachFormer))
		require.NoError(t, won.Drop(t.Context()))
		return true
	})
	require.Error(t, lost.Swap(t.Context(), projections.ReachFormer))
	_ = lost.Drop(t.Context()) // its connection is gone
	served := must.Get(two.Served(t.Context()))(t)
	require.Equal(t, uint64(2), served.Generation)
	require.NotEmpty(t, served.Store)
	sameButSecurity(t, want, two.dump(), "rebuilt")
}

// A generation is written on two connections: of a batch that one of them can't write, the other writes nothing
// either, and the batch goes in when it can. The tables that are served in the end are cleaned as before.
func TestAGenerationsBatchIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	log := conversationOf(2)
	a := filled(t, log, 100)
	want := a.dump()
	g := must.Get(a.NewGeneration(t.Context()))(t)
	a.exec("alter table turnledger_next.questions add constraint none check (turn_id is null)")
	to := claim(t, log, g)
	b := to.batch(100)
	require.True(t, projections.IsPermanent(g.Apply(t.Context(), b)))
	for _, table := range []string{"event_ledger", "questions", "answers"} {
		require.Empty(t, a.column("select '' from turnledger_next."+table), table)
	}
	a.exec("alter table turnledger_next.questions drop constraint none")
	require.NoError(t, g.Apply(t.Context(), b))
	require.NoError(t, g.Swap(t.Context(), projections.ReachFormer))
	require.NoError(t, g.Drop(t.Context()))
	sameButSecurity(t, want, a.dump(), "rebuilt")
	require.Empty(t, a.column(`select relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'turnledger' and c.reloptions::text like '%autovacuum_enabled%'`))
}
