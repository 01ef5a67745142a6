package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// A log is split into batches at random; batches are delivered again, broken off, and applied by another runner. The
// rows must be the same as after one batch with the whole log, and the same as a fold of the log. But for the security
// events, they must also be those of the log from which the eraser has removed events.
//
//conformance:h2 h29 h65
func TestRowsAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	read := &current{newJournal()}
	one, many := openAll(t, read)
	rapid.Check(t, func(t *rapid.T) {
		log := randomLog(t)
		read.journal = log
		steps := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "steps"), 0))
		one.empty()
		claim(t, log, one).all(len(log.events) + 1)
		want := one.dump()
		many.empty()
		unsteady(t, log, many, steps)
		require.Equal(t, want, many.dump(), "split")
		reference(t, log, one)

		left := log.without(goneFrom(log))
		read.journal = left
		many.empty()
		claim(t, left, many).all(1 + steps.IntN(50))
		anew := many.dump()
		sameButSecurity(t, want, anew, "erased")
	})
}

func openAll(t *testing.T, log projections.LogReader) (one, many *tables) {
	url := pg.URL(t)
	in := func(schema string) *tables {
		a, err := audit.Open(t.Context(), audit.Config{URL: url + "&pool_max_conns=1&application_name=audit_" + schema,
			Schema: schema, Rules: rules, Log: log})
		require.NoError(t, err)
		t.Cleanup(a.Close)
		return connected(t, a, url, schema, log)
	}
	return in("one"), in("many")
}

// unsteady applies a log as runners do that stop, come back, are killed, and deliver again. What a kill leaves hangs
// on the moment, so that the steps come from a source of their own.
func unsteady(t *rapid.T, log *journal, a *tables, steps *rand.Rand) {
	f := claim(t, log, a)
	var last projections.Batch
	for {
		switch steps.IntN(10) {
		case 0:
			f = claim(t, log, a)
		case 1:
			if len(last.Events) > 0 {
				require.ErrorIs(t, a.Apply(context.Background(), last), projections.ErrFenced)
			}
		case 2:
			killed(t, f, a, time.Duration(steps.IntN(3000))*time.Microsecond)
			if _, err := a.Claim(context.Background(), 0); err != nil {
				// The one connection of the pool was cut after its work.
				require.ErrorIs(t, err, audit.ErrUnavailable)
			}
			f = claim(t, log, a)
		default:
			last = f.batch(1 + steps.IntN(20))
			if len(last.Events) == 0 {
				return
			}
			require.NoError(t, a.Apply(context.Background(), last))
			f.at = last.To
		}
	}
}

// killed applies a batch while the connections are cut.
func killed(t *rapid.T, f *feed, a *tables, after time.Duration) {
	b := f.batch(20)
	if len(b.Events) == 0 {
		return
	}
	done := make(chan error, 1)
	go func() { done <- a.Apply(context.Background(), b) }()
	select {
	case err := <-done:
		require.NoError(t, err)
		return
	case <-time.After(after):
	}
	a.exec("select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname = "+
		"current_database() and application_name = $1 offset 0) p", "audit_"+a.name)
	if err := <-done; err != nil {
		require.ErrorIs(t, err, audit.ErrUnavailable)
		require.False(t, errors.Is(err, projections.ErrFenced))
	}
}

var sessions = []string{"s0", "s1", "s2"}

// randomLog is what several publishers, some of them wrong, may leave in a log.
func randomLog(t *rapid.T) *journal {
	log := newJournal()
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		session := rapid.SampledFrom(sessions).Draw(t, "session")
		request := rapid.SampledFrom([]string{"r1", "r2", "r3", "r4"}).Draw(t, "request")
		before, now := log.last, log.now
		// Some events are at the same microsecond, or at the same time, as the one before.
		log.pass(rapid.SampledFrom([]time.Duration{0, 0, 0, -time.Second, -time.Second - 7}).Draw(t, "at once"))
		act(t, log, session, request)
		if log.last == before {
			log.now = now // the log's clock never goes back
		}
		if log.last > before && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
			e := log.events[rapid.IntRange(0, len(log.events)-1).Draw(t, "which")]
			if e.Fact != nil {
				log.publish(envelope(e.Fact))
			}
		}
		if rapid.IntRange(0, 7).Draw(t, "silence") == 0 {
			log.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour)
		}
	}
	return log
}

// act appends what a command decides, or something that no command would.
func act(t *rapid.T, log *journal, session, request string) {
	s := log.state(session)
	turn := id(session, request)
	text := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "text")
	identity := rapid.SampledFrom([]string{"u", "v"}).Draw(t, "identity")
	switch rapid.IntRange(0, 29).Draw(t, "act") {
	case 0, 1, 2:
		q := question(request)
		q.QuestionNeutral = text
		log.add(&events.TurnStarted{TurnID: turn, SessionID: session, RequestID: request, Question: q})
	case 3, 4, 5:
		log.add(&events.TurnFinalized{TurnID: turn, SessionID: session, Answer: events.Answer{AnswerNeutral: text},
			Metadata: json.RawMessage(`{"n":"` + text + `"}`)})
	case 26, 27, 28:
		q := question(request)
		q.QuestionNeutral = text
		log.add(&events.TurnRecorded{TurnID: turn, SessionID: session, RequestID: request, Question: q,
			Answer: events.Answer{AnswerNeutral: text}})
	case 29:
		log.add(decide.Start{SessionID: session, RequestID: request, IdentityID: identity, Question: question(request),
			Answer: &events.Answer{AnswerNeutral: text}}.On(s).Facts...)
	case 6, 7:
		log.add(decide.Link(s, identity, "hash").Facts...)
	case 8:
		log.add(decide.Start{SessionID: session, RequestID: request, IdentityID: identity,
			Question: question(request)}.On(s).Facts...)
	case 9, 10:
		log.add(corrected(session, request+text, rapid.SampledFrom([]string{request, request + "one", request +
			"two"}).Draw(t, "old")))
	case 11, 12:
		log.add(decide.Redact{TurnID: turn}.On(s).Facts...)
	case 20, 21, 22:
		log.add(&events.TurnExtended{TurnID: turn, SessionID: session, Metadata: json.RawMessage(`{"n":"more"}`),
			ExtensionID: rapid.SampledFrom([]string{"e1", "e2", "e3"}).Draw(t, "extension"),
			Extension:   viewtest.DrawExtension(t, text)})
	case 23, 24:
		of := s.Turn(turn)
		if of != nil {
			chain := s.Chain(of)
			turn = chain[len(chain)-1].ID
		}
		log.add(viewtest.DrawPrune(t, s, log.Session(t.Context(), session, 0, log.last), turn)...)
	case 13, 25:
		log.add(decide.Reset(s, "", 0).Facts...)
	case 14:
		if rapid.Bool().Draw(t, "erase") {
			log.add(erased(session))
		}
	case 15, 16:
		log.add(decide.Describe{SessionID: session, RequestID: request, Title: &text,
			Kind:     rapid.SampledFrom([]events.SessionKind{"", "", events.KindResponse}).Draw(t, "kind"),
			Metadata: map[string]*string{request: &text}}.On(s, 0).Facts...)
	case 18, 19:
		child := rapid.SampledFrom(sessions).Draw(t, "child")
		mark, err := decide.ForkSession{SessionID: session, RequestID: request, ChildID: child}.Mark(s, s.Fork(),
			events.Position{Seq: s.Applied}, log.now)
		if err == nil && child != session {
			log.add(mark)
			if rapid.IntRange(0, 3).Draw(t, "dies") > 0 {
				log.add(decide.Fork(log.state(child), mark.Fork(), s.Identity).Facts...)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
			log.add(&events.SessionForked{SessionID: session, RequestID: request, Root: "root", FromSessionID: "from"})
		}
	case 17:
		wrong := envelope(started(session, request))
		wrong.Body = []byte(`{"turn_id":"` + text + `"}`)
		log.publish(wrong)
		log.add(&events.IdentityErased{IdentityID: identity, ReceiptID: "x"}, linked(session, identity))
	}
}

// reference folds the log by itself and holds every table against it.
func reference(t *rapid.T, log *journal, a *tables) {
	var ledger, security []string
	for _, sessionID := range append(slices.Clone(sessions), "") {
		state, in, rows := session.New(sessionID, rules), map[uuid.UUID]bool{}, map[uint64][]uuid.UUID{}
		for _, e := range log.events {
			if e.SessionID != sessionID {
				continue
			}
			if sessionID == "" {
				ledger = append(ledger, fmt.Sprint(e.Position.Seq))
				continue
			}
			c := state.Fold(e)
			if c.Kind == session.Anomaly || c.Kind == session.Refused {
				security = append(security, fmt.Sprint(e.Position.Seq, " ", c.Kind, " ", c.Reason))
			}
			belong(state, c, in)
			log.stay(state, e, c, rows)
		}
		for seq := range rows {
			ledger = append(ledger, fmt.Sprint(seq))
		}
		if sessionID != "" {
			sameRows(t, a, state, in)
		}
	}
	sameList(t, log, a.Audit)
	sameCounts(t, log, a.Audit)
	require.ElementsMatch(t, ledger, a.column("select seq::text from one.event_ledger"))
	require.ElementsMatch(t, security, a.column("select seq || ' ' || kind || ' ' || case kind when 'anomaly' then "+
		"reason else '' end from one.security_events"))
}

// stay keeps which events of a session have a ledger row.
func (j *journal) stay(state *session.State, e events.Recorded, c session.Change,
	rows map[uint64][]uuid.UUID) {
	names := named(e)
	switch {
	case c.Kind == session.Erased:
		for seq := range rows {
			if seq != state.LinkedAt && !j.mark(state.SessionID, seq) {
				delete(rows, seq)
			}
		}
	case state.Erased != 0:
		return
	case e.Type == events.TypeSessionSummarized:
		return // it may leave the log at any time
	case e.Type == events.TypeSessionDescribed:
		if c.Kind != session.Described {
			return
		}
		for seq := range rows {
			if of, _, _ := j.At(context.Background(), events.Position{Seq: seq}); of.Type == e.Type {
				delete(rows, seq)
			}
		}
	case c.Kind == session.TurnGone, c.Kind == session.Pruned:
		for seq, turns := range rows {
			if slices.ContainsFunc(turns, func(id uuid.UUID) bool {
				return c.Kind == session.Pruned && id == c.Turn.ID || slices.ContainsFunc(c.Turns,
					func(t *session.Turn) bool { return t.ID == id })
			}) {
				delete(rows, seq)
			}
		}
	case c.Reason == session.CodeTurnPruned:
		return
	case slices.ContainsFunc(names, func(id uuid.UUID) bool {
		t := state.Turn(id)
		return t != nil && t.Redacted != 0
	}):
		return
	}
	rows[e.Position.Seq] = names
}

// mark reports whether an event is a mark of a branch that counted, which outlives its session.
func (j *journal) mark(sessionID string, seq uint64) bool {
	s := session.New(sessionID, rules)
	for _, e := range j.events {
		if e.SessionID == sessionID {
			if c := s.Fold(e); e.Position.Seq == seq {
				return e.Type == events.TypeSessionBranched && c.Kind != session.Anomaly
			}
		}
	}
	return false
}

// sameRows holds the rows of a session against its fold.
func sameRows(t *rapid.T, a *tables, want *session.State, in map[uuid.UUID]bool) {
	have, at := must.Two(a.SessionTurns(context.Background(), want.SessionID, -1))(t)
	if want.Identity == "" && want.Erased == 0 {
		require.Nil(t, have)
		return
	}
	require.NotNil(t, have)
	require.GreaterOrEqual(t, at.Seq, want.Applied)
	require.Equal(t, want.Head(), have.Head())
	turns := slices.DeleteFunc(slices.Clone(want.Turns), func(t *session.Turn) bool { return !in[t.ID] })
	require.Len(t, have.Turns, len(turns))
	for i, w := range turns {
		sameTurn(t, w, have.Turns[i])
	}
	if have.Whole {
		require.Len(t, turns, len(want.Turns))
	}
}
