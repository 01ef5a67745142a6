package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

func conversationOf(turns int) *journal {
	l := newJournal()
	l.add(started("s", "r0"), linked("s", "u"))
	for i := range turns {
		r := string(rune('a' + i))
		l.add(started("s", r), finalized("s", r))
	}
	return l
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	log := conversationOf(3)
	a := open(t, log)
	at := must.Get(a.Applied(t.Context(), 0))(t)
	require.Equal(t, events.Position{}, at, "nothing is applied yet")

	f := claim(t, log, a)
	store := f.at.Store
	require.NotEmpty(t, store)
	require.Equal(t, projections.Checkpoint{Epoch: 1, Store: store, Generation: 1}, f.at)
	b := f.batch(3)
	b.To.Created = day.Add(1)
	b.To.EventID = "an id \x00 with anything \xff"
	require.NoError(t, a.Apply(t.Context(), b))
	again := must.Get(a.Claim(t.Context(), 0))(t)
	b.To.Epoch = 2
	require.Equal(t, b.To, again, "the stream's time and the event's id come back exactly")
	at = must.Get(a.Applied(t.Context(), 0))(t)
	require.Equal(t, events.Position{Seq: 3}, at)

	other := must.Get(a.Claim(t.Context(), 7))(t)
	require.Equal(t, projections.Checkpoint{Partition: 7, Epoch: 1, Store: store, Generation: 1}, other,
		"each partition has its own")
}

// A runner whose partition another one has claimed applies and parks nothing more.
//
//conformance:h11 h43
func TestAFormerRunnerIsFenced(t *testing.T) {
	t.Parallel()
	log := conversationOf(3)
	a := open(t, log)
	first := claim(t, log, a)
	applied := first.batch(2)
	require.NoError(t, a.Apply(t.Context(), applied))
	first.at = applied.To
	second := claim(t, log, a)
	for _, late := range []projections.Batch{applied, first.batch(1)} {
		before := a.dump()
		require.ErrorIs(t, a.Apply(t.Context(), late), projections.ErrFenced)
		late.Events = late.Events[:1]
		require.ErrorIs(t, a.Park(t.Context(), late, "no reason"), projections.ErrFenced)
		require.Equal(t, before, a.dump())
	}
	second.all(2)
	sameSession(t, a, log, "s")
}

// A backend that dies in the middle of a transaction leaves nothing, and the batch can be applied again.
func TestCrashInMidTransaction(t *testing.T) {
	t.Parallel()
	log := conversationOf(10)
	want := filled(t, log, 1000).dump()
	a := open(t, log)
	f := claim(t, log, a)
	require.True(t, f.next(6))
	before := a.dump()

	// The last table that an apply writes is locked, so that it hangs with all else written.
	blocker := must.Get(a.pool.Begin(t.Context()))(t)
	defer func() { _ = blocker.Rollback(context.Background()) }()
	must.Get(blocker.Exec(t.Context(), "lock table turnledger.sessions in exclusive mode"))(t)
	broken := make(chan error, 1)
	b := f.batch(100)
	go func() { broken <- a.Apply(t.Context(), b) }()
	var waits []string
	hang.Until(t, func() bool {
		waits = a.column("select pid::text from pg_stat_activity where datname = current_database() and " +
			"wait_event_type = 'Lock'")
		return len(waits) == 1
	})
	a.exec("select pg_terminate_backend($1::text::int)", waits[0])
	err := <-broken
	require.ErrorIs(t, err, audit.ErrUnavailable)
	require.False(t, projections.IsPermanent(err))
	require.NoError(t, blocker.Rollback(t.Context()))
	require.Equal(t, before, a.dump())

	f = claim(t, log, a)
	f.all(100)
	require.Equal(t, want, a.dump())
}

// A turn may have its rows already where the log lost its past, or where a checkpoint was set back by hand.
func TestRowsThatStandAlreadyAreWrittenOver(t *testing.T) {
	t.Parallel()
	log := conversationOf(4)
	log.redact("s", id("s", "b"))
	log.add(corrected("s", "c2", "c"), &events.LinkRefused{SessionID: "s", IdentityID: "thief"})
	a := open(t, log)
	for split, most := range splits {
		a.empty()
		claim(t, log, a).all(most)
		before := a.dump()
		a.exec("update turnledger.projection_checkpoints set seq = 0")
		claim(t, log, a).all(most)
		require.Equal(t, before, a.dump(), split)
	}
}

// One statement is not given more than PostgreSQL takes.
func TestLargeRowsAreWrittenOverInParts(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i := range 5 {
		request := fmt.Sprint("r", i)
		large := finalized("s", request)
		large.AnswerNeutral = strings.Repeat(request, 1<<20) // five of them are more than one statement takes
		log.add(started("s", request), large)
	}
	a := filled(t, log, 1000)
	a.exec("update turnledger.projection_checkpoints set seq = 0; update turnledger.answers set answer_neutral = ''; " +
		"delete from turnledger.questions where place > 6")
	claim(t, log, a).all(1000)
	sameSession(t, a, log, "s")
}

func TestPark(t *testing.T) {
	t.Parallel()
	log := conversationOf(1)
	a := open(t, log)
	claim(t, log, a).park(a)
	l := a.letters(t)[0]
	require.Equal(t, projections.DeadLetter{Projection: "audit", Position: events.Position{Seq: 1},
		EventID: log.events[0].ID, Type: events.TypeTurnStarted, SessionID: "s", Reason: "a test", Attempts: 1,
		ParkedAt: l.ParkedAt}, l)
	require.Equal(t, uint64(1), must.Get(a.Applied(t.Context(), 0))(t).Seq, "the checkpoint has moved past it")

	a.exec("update turnledger.projection_checkpoints set seq = 0")
	require.NoError(t, a.Park(t.Context(), claim(t, log, a).batch(1), "another"))
	require.Len(t, a.letters(t), 1)
	require.Equal(t, "another 2", fmt.Sprint(a.letters(t)[0].Reason, " ", a.letters(t)[0].Attempts))
}

// What PostgreSQL refuses for its content is permanent, and told without the content.
func TestRefusedRowIsPermanent(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"), started("s", "r1"))
	a := open(t, log)
	a.exec("alter table turnledger.questions add check (question_neutral <> 'question r1')")
	err := a.Apply(t.Context(), claim(t, log, a).batch(10))
	require.True(t, projections.IsPermanent(err))
	require.ErrorContains(t, err, "23514")
	require.NotContains(t, err.Error(), "question r1")
	require.NotErrorIs(t, err, audit.ErrUnavailable)
}

// unreadable is a log that gives nothing.
type unreadable struct {
	*journal
	err error
}

func (u unreadable) Session(context.Context, string, uint64, uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) { yield(events.Recorded{}, u.err) }
}

func TestBackfillThatFails(t *testing.T) {
	t.Parallel()
	log := conversationOf(1)
	down := errors.New("the log is down")
	a := open(t, unreadable{log, down})
	claim(t, log, a).next(1)
	err := a.Apply(t.Context(), claim(t, log, a).batch(10)) // what was kept is forgotten
	require.ErrorIs(t, err, down)
	require.False(t, projections.IsPermanent(err))
}

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
