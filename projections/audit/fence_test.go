package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
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
	at, err := a.Applied(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, events.Position{}, at, "nothing is applied yet")

	f := claim(t, log, a)
	store := f.at.Store
	require.NotEmpty(t, store)
	require.Equal(t, projections.Checkpoint{Epoch: 1, Store: store, Generation: 1}, f.at)
	b := f.batch(3)
	b.To.Created = day.Add(1)
	b.To.EventID = "an id \x00 with anything \xff"
	require.NoError(t, a.Apply(t.Context(), b))
	again, err := a.Claim(t.Context(), 0)
	require.NoError(t, err)
	b.To.Epoch = 2
	require.Equal(t, b.To, again, "the stream's time and the event's id come back exactly")
	at, err = a.Applied(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, events.Position{Seq: 3}, at)

	other, err := a.Claim(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, projections.Checkpoint{Partition: 7, Epoch: 1, Store: store, Generation: 1}, other,
		"each partition has its own")
}

//conformance:h11 h43
func TestRedeliveryIsHarmless(t *testing.T) {
	t.Parallel()
	log := conversationOf(4)
	log.redact("s", id("s", "b"))
	log.add(corrected("s", "c2", "c"), erased("other"))
	a := open(t, log)
	f := claim(t, log, a)
	var sent []projections.Batch
	for {
		b := f.batch(2)
		if len(b.Events) == 0 {
			break
		}
		require.NoError(t, a.Apply(t.Context(), b))
		sent, f.at = append(sent, b), b.To
	}
	before := a.dump()
	for _, b := range sent {
		require.ErrorIs(t, a.Apply(t.Context(), b), projections.ErrFenced)
		b.Events = b.Events[:1]
		require.ErrorIs(t, a.Park(t.Context(), b, "no reason"), projections.ErrFenced)
	}
	require.Equal(t, before, a.dump())
}

func TestTwoRunnersFenceEachOther(t *testing.T) {
	t.Parallel()
	log := conversationOf(20)
	a := open(t, log)
	first := claim(t, log, a)
	require.True(t, first.next(2))
	second := claim(t, log, a)
	require.ErrorIs(t, a.Apply(t.Context(), first.batch(2)), projections.ErrFenced)
	require.True(t, second.next(2))

	// Both go on at once, and take the partition from each other whenever they are fenced.
	var runners sync.WaitGroup
	for range 2 {
		runners.Go(func() {
			f := claim(t, log, a)
			for {
				b := f.batch(3)
				if len(b.Events) == 0 {
					return
				}
				switch err := a.Apply(context.Background(), b); {
				case err == nil:
					f.at = b.To
				case errors.Is(err, projections.ErrFenced):
					f = claim(t, log, a)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	runners.Wait()
	sameSession(t, a, log, "s")
	require.Equal(t, len(log.events), a.count("event_ledger"))
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
	blocker, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(context.Background()) }()
	_, err = blocker.Exec(t.Context(), "lock table turnledger.sessions in exclusive mode")
	require.NoError(t, err)
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
	err = <-broken
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
	for split, most := range splits {
		a := filled(t, log, most)
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
		large.AnswerNeutral = strings.Repeat(request, 2<<20)
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
	f := claim(t, log, a)
	b := f.batch(1)
	require.NoError(t, a.Park(t.Context(), b, "a reason"))
	l := a.letters(t)[0]
	require.Equal(t, fmt.Sprint("audit 0:1 "+log.events[0].ID+" turnledger.turn.started.v1 s a reason ", 1),
		fmt.Sprint(l.Projection, " ", l.Position, " ", l.EventID, " ", l.Type, " ", l.SessionID, " ", l.Reason, " ",
			l.Attempts))
	at, err := a.Applied(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), at.Seq, "the checkpoint has moved past it")

	a.exec("update turnledger.projection_checkpoints set seq = 0")
	f = claim(t, log, a)
	require.NoError(t, a.Park(t.Context(), f.batch(1), "another"))
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
	a, err := audit.Open(t.Context(), audit.Config{URL: pg.URL(t), Rules: rules, Log: unreadable{log, down}})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	claim(t, log, a).next(1)
	err = a.Apply(t.Context(), claim(t, log, a).batch(10)) // what was kept is forgotten
	require.ErrorIs(t, err, down)
	require.False(t, projections.IsPermanent(err))
}
