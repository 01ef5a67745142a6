package audit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// A turn that began before the link, was answered after it, redacted, and whose session
// was then erased: the right row at every step, also where the log has lost by then what
// the eraser takes out.
//
//conformance:h45
func TestOneTurnThroughAllItsStates(t *testing.T) {
	t.Parallel()
	log := newJournal()
	read := &current{log}
	live, anew := open(t, log), open(t, read)
	feed := claim(t, log, live)
	step := func(turns []string, sessions, links, ledger int) {
		t.Helper()
		feed.all(10)
		build := func(log *journal) *tables {
			read.journal = log
			anew.empty()
			claim(t, log, anew).all(10)
			return anew
		}
		for name, of := range map[string]func() *tables{
			"live":                         func() *tables { return live },
			"built anew":                   func() *tables { return build(log) },
			"built anew from what is left": func() *tables { return build(log.without(goneFrom(log))) },
		} {
			a := of()
			require.Equal(t, turns, a.requests("s"), name)
			require.Equal(t, []int{sessions, links, ledger}, []int{a.count("sessions"), a.count("session_links"),
				a.count("event_ledger")}, name)
		}
	}
	log.add(started("s", "r1"))
	step([]string{}, 1, 0, 1) // the head of an anonymous session, for the list
	log.add(linked("s", "u"))
	step([]string{"r1 pending"}, 1, 1, 2)
	log.add(finalized("s", "r1"))
	step([]string{"r1 finalized"}, 1, 1, 3)
	log.redact("s", id("s", "r1"))
	step([]string{"r1 redacted"}, 1, 1, 2)
	log.add(erased("s"))
	step([]string{}, 1, 1, 2)
	log.add(&events.ErasureReceipt{SessionID: "s", ReceiptID: "receipt-1", Place: "log", Erased: 3}, started("s", "r1"))
	step([]string{}, 1, 1, 3)
}

// What a retention takes out of the log goes out of the ledger, and its markers stay.
func TestEventsThatRetentionTookAreForgotten(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("s", "r1"), finalized("s", "r1"), started("s", "r2"))
	log.redact("s", id("s", "r1"))
	log.add(started("t", "r1"), started("s", "r3"))
	a := filled(t, log, 10)
	var purged bool
	require.NoError(t, a.ForgetEvents(t.Context(), 0, []uint64{1, 2, 3}, func(context.Context) error {
		purged = true
		return nil
	}))
	require.True(t, purged)
	require.Equal(t, []string{"4", "5", "6"}, a.ledger())
}

// Who feeds the tables may have read an event that the eraser has taken out since, and not
// applied it: what it has read it writes no more.
func TestWhatIsForgottenIsNotWrittenLater(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("s", "r1"), started("s", "r2"))
	a := open(t, log)
	read := claim(t, log, a).batch(10)
	require.NoError(t, a.ForgetEvent(t.Context(), events.Position{Seq: 1}))
	require.ErrorIs(t, a.Apply(t.Context(), read), projections.ErrFenced)

	feed := claim(t, log.without(func(e events.Recorded) bool { return e.Position.Seq == 1 }), a)
	feed.all(10)
	require.NoError(t, a.ForgetEvent(t.Context(), events.Position{Seq: 1}), "said again")
	require.Equal(t, []string{"2"}, a.ledger())
	log.add(started("s", "r3"))
	feed.log = log
	require.True(t, feed.next(1), "who has applied it goes on")
}

// Who feeds the tables may have read what a retention takes out, and not applied it: it
// would write its rows when nobody forgets them any more.
func TestNothingIsForgottenBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("s", "r1"), finalized("s", "r1"))
	a := open(t, log)
	feed := claim(t, log, a)
	forget := func(purged *bool) error {
		return a.ForgetEvents(t.Context(), 0, []uint64{1, 2}, func(context.Context) error {
			*purged = true
			return nil
		})
	}
	var purged bool
	require.ErrorIs(t, forget(&purged), audit.ErrNotYet)
	require.False(t, purged)
	feed.all(10)
	require.NoError(t, forget(&purged))
	require.True(t, purged)
	require.Zero(t, a.count("event_ledger"))
}

// A rebuild may have read what a retention takes out, and would bring it back: neither
// begins while the other is under way.
func TestNothingIsForgottenWhileTablesAreFilled(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("s", "r1"))
	a := filled(t, log, 10)
	forget := func(purge func(context.Context) error) error {
		return a.ForgetEvents(t.Context(), 0, []uint64{1}, purge)
	}
	next := must.Get(a.NewGeneration(t.Context()))(t)
	require.ErrorIs(t, forget(func(context.Context) error {
		t.Error("purged beside a rebuild")
		return nil
	}), audit.ErrNotYet)
	require.ErrorIs(t, a.ForgetEvent(t.Context(), events.Position{Seq: 1}), audit.ErrNotYet)
	require.Equal(t, 1, a.count("event_ledger"))
	require.NoError(t, next.Drop(t.Context()))

	const waiting = `select locktype from pg_locks join pg_database d on d.oid = database
		where datname = current_database() and locktype = 'advisory' and not granted`
	began := make(chan error, 1)
	require.NoError(t, forget(func(ctx context.Context) error {
		go func() {
			g, err := a.NewGeneration(ctx)
			if err == nil {
				err = g.Drop(ctx)
			}
			began <- err
		}()
		hang.Until(t, func() bool { return len(a.column(waiting)) == 1 }, "the rebuild waits")
		require.Empty(t, began)
		return nil
	}))
	require.NoError(t, <-began)
	require.Zero(t, a.count("event_ledger"))
	cut := errors.New("cut")
	require.ErrorIs(t, forget(func(context.Context) error { return cut }), cut)
}

// What a retention leaves of anonymous sessions and of their branches are the rows that a rebuild makes: no row, or one
// that rests on the redactions that stay.
func TestRowsAfterARetentionAreThoseOfARebuild(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("gone", "r1"), finalized("gone", "r1"))
	log.add(started("root", "r1"), finalized("root", "r1"), started("root", "r2"))
	mark, err := decide.ForkSession{SessionID: "root", RequestID: "f", ChildID: "branch"}.Mark(log.state("root"),
		session.Fork{}, events.Position{Seq: log.last}, log.now)
	require.NoError(t, err)
	log.add(mark, mark.Fork(), started("branch", "r1"), finalized("branch", "r1"), started("branch", "r2"))
	title := "t"
	log.add(decide.Describe{SessionID: "branch", RequestID: "d",
		Title: &title}.On(log.state("branch"), 0).Facts...)
	log.pass(48 * time.Hour) // a boundary
	log.add(started("branch", "r3"), &events.LinkRefused{SessionID: "branch", IdentityID: "thief"},
		&events.LinkRefused{SessionID: "gone", IdentityID: "thief"})
	log.redact("branch", id("branch", "r1"))
	log.add(started("stays", "r1"))
	a := filled(t, log, 10)
	left := log.without(func(e events.Recorded) bool {
		return e.SessionID != "stays" && e.Type != events.TypeTurnRedacted
	})
	for _, sessionID := range []string{"gone", "root", "branch"} {
		var seqs []uint64
		for _, e := range log.events {
			if e.SessionID == sessionID && e.Type != events.TypeTurnRedacted {
				seqs = append(seqs, e.Position.Seq)
			}
		}
		require.NoError(t, a.ForgetEvents(t.Context(), 0, seqs, func(context.Context) error { return nil }))
	}
	require.Equal(t, filled(t, left, 10).dump()["sessions"], a.dump()["sessions"])
}
