package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// splits are batch sizes at which a rule must hold: each event by itself, some together, all at once.
var splits = map[string]int{"one by one": 1, "in threes": 3, "in one batch": 1000}

// rule checks what a log leaves in the tables, however it is split.
func rule(t *testing.T, name string, write func(*journal), check func(*testing.T, *journal, *tables)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		log := newJournal()
		write(log)
		a := open(t, log)
		for split, most := range splits {
			t.Run(split, func(t *testing.T) {
				a.t = t
				a.empty()
				claim(t, log, a).all(most)
				check(t, log, a)
			})
		}
	})
}

//conformance:h11 h44
func TestTurns(t *testing.T) {
	t.Parallel()
	rule(t, "an anonymous session leaves its head, ledger rows and no text", func(l *journal) {
		l.add(started("s", "r1"), finalized("s", "r1"))
	}, func(t *testing.T, _ *journal, a *tables) {
		require.Empty(t, a.requests("s"))
		require.Equal(t, []int{1, 0, 0, 2}, []int{a.count("sessions"), a.count("questions"), a.count("answers"),
			a.count("event_ledger")})
	})
	rule(t, "turns come in their order, answered late or out of it", func(l *journal) {
		l.add(linked("s", "u"), started("s", "r1"), started("s", "r2"), started("s", "r3"), finalized("s", "r3"),
			finalized("s", "r1"))
	}, func(t *testing.T, _ *journal, a *tables) {
		require.Equal(t, []string{"r1 finalized", "r2 pending", "r3 finalized"}, a.requests("s"))
	})
	rule(t, "what came twice, or contradicts, changes no turn", func(l *journal) {
		other := started("s", "r1")
		other.QuestionNeutral = "something else"
		l.add(linked("s", "u"), started("s", "r1"), started("s", "r1"), other, finalized("s", "r2"),
			linked("s", "thief"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r1 pending"}, a.requests("s"))
		sameSession(t, a, l, "s")
		require.Equal(t, 6, a.count("event_ledger"))
		require.Equal(t, []string{"4 second_start", "5 turn_not_started", "6 session_linked_elsewhere thief"},
			security(a))
	})
	rule(t, "a reset moves the boundary and keeps every turn", func(l *journal) {
		l.add(linked("s", "u"), started("s", "r1"), finalized("s", "r1"),
			&events.SessionReset{SessionID: "s", After: events.Position{Seq: 3}}, started("s", "r2"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r1 finalized", "r2 pending"}, a.requests("s"))
		sameSession(t, a, l, "s")
		require.Equal(t, []string{"4"}, a.column("select reset_position::text from turnledger.sessions"))
	})
}

//conformance:h14 h34 h49
func TestLink(t *testing.T) {
	t.Parallel()
	rule(t, "brings the earlier turns in, in their order, with what befell them", func(l *journal) {
		l.add(started("s", "r1"), finalized("s", "r1"), started("s", "r2"), corrected("s", "r1b", "r1"),
			started("s", "r3"), finalized("s", "r3"))
		l.redact("s", id("s", "r3"))
		l.add(linked("s", "u"), finalized("s", "r2"), started("s", "r4"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r1 replaced", "r1b finalized", "r2 finalized", "r3 redacted", "r4 pending"},
			a.requests("s"))
		sameSession(t, a, l, "s")
	})
	rule(t, "leaves out what a silence closed, and all that comes of it", func(l *journal) {
		l.add(started("s", "r1"), finalized("s", "r1"), started("s", "r2"))
		l.pass(25 * time.Hour)
		l.add(started("s", "r3"), linked("s", "u"), finalized("s", "r2"), corrected("s", "r1b", "r1"),
			corrected("s", "r1c", "r1b"), corrected("s", "r2b", "r2"), finalized("s", "r3"),
			corrected("s", "r3b", "r3"))
	}, func(t *testing.T, _ *journal, a *tables) {
		require.Equal(t, []string{"r3 replaced", "r3b finalized"}, a.requests("s"))
		require.Equal(t, 2, a.count("answers"), "no text of what was left out")
	})
	rule(t, "of a session whose silence the link itself ends", func(l *journal) {
		l.add(started("s", "r1"))
		l.pass(25 * time.Hour)
		l.add(linked("s", "u"), started("s", "r2"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r2 pending"}, a.requests("s"))
		require.Equal(t, l.state("s").Head(), head(t, a, "s"))
	})
	rule(t, "refused is kept for the security audit: who, when, and from where as a hash", func(l *journal) {
		l.add(linked("s", "u"), &events.LinkRefused{SessionID: "s", IdentityID: "thief", SourceHash: "sha256:abcd"})
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"2 session_linked_elsewhere thief sha256:abcd"}, security(a))
		require.Equal(t, []string{"u"}, a.column("select identity_id from turnledger.session_links"))
		require.Equal(t, []string{l.events[1].Time.Format("2006-01-02 15:04:05.000000")}, a.column(`select
			to_char(recorded_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US') from turnledger.security_events`))
	})
}

//conformance:h59
func TestCorrection(t *testing.T) {
	t.Parallel()
	rule(t, "stands in the old turn's place, and the old one names it", func(l *journal) {
		l.add(linked("s", "u"), started("s", "r1"), finalized("s", "r1"), started("s", "r2"),
			corrected("s", "r1b", "r1"), corrected("s", "r1c", "r1b"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r1 replaced", "r1b replaced", "r1c finalized", "r2 pending"}, a.requests("s"))
		require.Equal(t, []string{"r1 1 r1b", "r1b 2 r1c", "r1c 3 ", "r2 1 "}, a.column(`
			select t.request_id || ' ' || t.record_version || ' ' || coalesce(n.request_id, '')
			from turnledger.turns t left join turnledger.turns n on n.turn_id = t.replaced_by_turn_id order by 1`))
		sameSession(t, a, l, "s")
	})
}

func TestErasedSession(t *testing.T) {
	t.Parallel()
	rule(t, "keeps one closed row, its link, and no turns", func(l *journal) {
		l.add(started("s", "r1"), linked("s", "u"), finalized("s", "r1"), corrected("s", "r1b", "r1"),
			started("s", "r2"), erased("s"), started("s", "r3"), erased("s"), linked("other", "u"),
			started("other", "r1"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Empty(t, a.requests("s"))
		require.Equal(t, 1, a.count("questions"))
		require.Zero(t, a.count("answers"))
		require.Equal(t, []string{"other 0", "s 6"}, a.column(
			"select session_id || ' ' || coalesce(erased_position, 0) from turnledger.sessions order by 1"))
		require.Equal(t, []string{"2", "6", "9", "10"}, a.ledger())
		require.Equal(t, l.state("s").Head(), head(t, a, "s"))
		require.Equal(t, []string{"7 session_erased"}, security(a))
	})
	rule(t, "has a closed row also if it was anonymous", func(l *journal) {
		l.add(started("s", "r1"), erased("s"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, l.state("s").Head(), head(t, a, "s"))
		require.Equal(t, 1, a.count("event_ledger"))
	})
}

func TestLedger(t *testing.T) {
	t.Parallel()
	rule(t, "has a row for each event, also for those of identities and of nobody", func(l *journal) {
		wrong := envelope(started("s", "r1"))
		wrong.Subject = "turns.1.s"
		l.publish(wrong)
		l.publish(events.Envelope{Subject: events.SessionSubject("s"), Body: []byte("not JSON")})
		l.add(&events.IdentityErased{IdentityID: "u", ReceiptID: "x"}, &events.ErasureReceipt{IdentityID: "u",
			ReceiptID: "x", Place: "log", Erased: 1})
	}, func(t *testing.T, _ *journal, a *tables) {
		require.Equal(t, []string{"1 - -", "2 s -", "3 - u", "4 - u"}, a.column(`
			select seq || ' ' || coalesce(session_id, '-') || ' ' || coalesce(identity_id, '-')
			from turnledger.event_ledger order by seq`))
		require.Equal(t, []string{"1 wrong_subject", "2 not_a_cloudevent"}, security(a))
	})
}

// ledger lists the sequences of the events that have a row.
func (a *tables) ledger() []string {
	a.t.Helper()
	return a.column("select seq::text from turnledger.event_ledger l order by l.seq")
}

// security lists the security events, short.
func security(a *tables) []string {
	return a.column(`select concat_ws(' ', seq, reason, identity_id, source_hash) from turnledger.security_events order by seq`)
}

// head of a session as the tables give it.
func head(t *testing.T, a *tables, sessionID string) session.Head {
	t.Helper()
	state, _ := must.Two(a.SessionTurns(context.Background(), sessionID, -1))(t)
	require.NotNil(t, state)
	return state.Head()
}

// sameSession holds a session of the tables against a fold of the log.
func sameSession(t require.TestingT, a *tables, l *journal, session string) {
	have, at, err := a.SessionTurns(context.Background(), session, -1)
	require.NoError(t, err)
	require.Equal(t, l.last, at.Seq)
	require.NotNil(t, have)
	want := l.state(session)
	require.Equal(t, want.Boundary == 0, have.Whole)
	sameState(t, want, have)
}

func sameState(t require.TestingT, want, have *session.State) {
	require.Equal(t, want.Head(), have.Head())
	require.Len(t, have.Turns, len(want.Turns))
	for i, w := range want.Turns {
		sameTurn(t, w, have.Turns[i])
	}
}

// sameTurn compares two turns; one of the tables has its metadata in one piece.
func sameTurn(t require.TestingT, want, have *session.Turn) {
	if want.Question != nil {
		if wanted := string(want.Metadata()); wanted == "" || wanted == "null" {
			require.Empty(t, have.Metadata())
		} else {
			require.JSONEq(t, wanted, string(have.Metadata()))
		}
		wq, hq := *want.Question, *have.Question
		wq.Metadata, hq.Metadata = nil, nil
		require.Equal(t, wq, hq)
	} else {
		require.Nil(t, have.Question)
	}
	require.Equal(t, want.Answer, have.Answer)
	type plain struct {
		ID, Replaces, ReplacedBy    any
		RequestID, Status, Was      string
		Version                     int
		Place, Started, Final, Gone uint64
		Created, Answered, Deleted  time.Time
		Translate                   bool
	}
	of := func(t *session.Turn) plain {
		return plain{t.ID, t.Replaces, t.ReplacedBy, t.RequestID, t.Status.String(), t.StatusBefore.String(), t.Version,
			t.Place, t.Started, t.Final, t.Redacted, t.CreatedAt, t.FinalizedAt, t.DeletedAt, t.TranslateChat}
	}
	require.Equal(t, of(want), of(have))
}
