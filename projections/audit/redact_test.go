package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

//conformance:h63
func TestRedaction(t *testing.T) {
	t.Parallel()
	rule(t, "leaves a tombstone of every version", func(l *journal) {
		l.add(started("s", "r1"), finalized("s", "r1"), linked("s", "u"), corrected("s", "r1b", "r1"),
			started("s", "r2"))
		l.redact("s", id("s", "r1b"))
		l.redact("s", id("s", "r2"))
		l.add(started("s", "r3"))
	}, func(t *testing.T, l *journal, a *tables) {
		require.Equal(t, []string{"r1 redacted", "r1b redacted", "r2 redacted", "r3 pending"}, a.requests("s"))
		sameSession(t, a, l, "s")
		require.Equal(t, []string{"3", "6", "7", "8"}, a.ledger(), "rows of what the eraser takes out go too")
	})
	rule(t, "takes no later event about the turn in, and keeps the attempt", func(l *journal) {
		l.add(linked("s", "u"), started("s", "r1"))
		l.redact("s", id("s", "r1"))
		l.add(started("s", "r1"), finalized("s", "r1"), corrected("s", "r1b", "r1"))
		l.publish(envelope(l.events[2].Fact))
	}, func(t *testing.T, l *journal, a *tables) {
		sameSession(t, a, l, "s")
		require.Equal(t, []string{"1", "3"}, a.ledger())
		require.Equal(t, []string{"4 turn_redacted", "5 turn_redacted", "6 turn_redacted"}, security(a))
	})
	rule(t, "of a turn that the link left out shows its tombstone", func(l *journal) {
		l.add(started("s", "r1"), finalized("s", "r1"))
		l.pass(25 * time.Hour)
		l.add(linked("s", "u"))
		l.redact("s", id("s", "r1"))
	}, func(t *testing.T, _ *journal, a *tables) { require.Equal(t, []string{"r1 redacted"}, a.requests("s")) })
	rule(t, "in an anonymous session takes ledger rows only", func(l *journal) {
		l.add(started("s", "r1"), started("s", "r2"))
		l.redact("s", id("s", "r1"))
	}, func(t *testing.T, _ *journal, a *tables) {
		require.Zero(t, a.count("questions"))
		require.Equal(t, []string{"2", "3"}, a.ledger())
	})
}

// The rows must be the same whether the turn's own events still stand in the log or not.
func TestRedactedLogGivesTheSameRows(t *testing.T) {
	t.Parallel()
	logs := map[string]func(*journal){
		"a turn, its correction, and what names them": func(l *journal) {
			l.add(linked("s", "u"), started("s", "r1"), finalized("s", "r1"), started("s", "r2"), finalized("s", "r2"),
				corrected("s", "r1b", "r1"))
			other := started("s", "r1")
			other.QuestionNeutral = "another"
			l.add(other, corrected("s", "r1c", "r1"))
			l.redact("s", id("s", "r1"))
			l.add(finalized("s", "r1"), started("s", "r3"))
		},
		"a turn without which the session seems silent before its link": func(l *journal) {
			l.add(started("s", "r1"), finalized("s", "r1"))
			l.pass(20 * time.Hour)
			l.add(started("s", "r2"), finalized("s", "r2"))
			l.pass(20 * time.Hour)
			l.add(linked("s", "u"), started("s", "r3"), corrected("s", "r1b", "r1"), finalized("s", "r3"))
			l.redact("s", id("s", "r2"))
			l.add(started("s", "r4"), corrected("s", "r1c", "r1b"))
		},
		"the only turn before a silence": func(l *journal) {
			l.add(started("s", "r1"), finalized("s", "r1"))
			l.pass(30 * time.Hour)
			l.add(linked("s", "u"), started("s", "r2"))
			l.redact("s", id("s", "r1"))
		},
		"events without a fact that name the turn": func(l *journal) {
			l.add(linked("s", "u"), started("s", "r1"))
			bare := func(body, ceID string) { l.publish(unread("s", ceID, events.TypeTurnFinalized, body)) }
			bare(`{"turn_id":"`+id("s", "r1").String()+`","answer":"a text"}`, "an id of its own")
			bare(`{"replaces_turn_id":"`+id("s", "r1").String()+`","turn_id":7}`, "x")
			bare(`a text`, id("s", "r1").String()+".finalized")
			l.redact("s", id("s", "r1"))
			bare(`a text`, id("s", "r1").String()+".started")
		},
	}
	for name, write := range logs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := newJournal()
			write(whole)
			left := whole.without(goneFrom(whole))
			require.Less(t, len(left.events), len(whole.events))
			read := &current{whole}
			a := open(t, read)
			rows := func(log *journal, most int) map[string][]string {
				read.journal = log
				a.empty()
				claim(t, log, a).all(most)
				return a.dump()
			}
			for split, most := range splits {
				live, anew := rows(whole, most), rows(left, most)
				sameButSecurity(t, live, anew, split)
				require.Subset(t, live["security_events"], anew["security_events"])
			}
		})
	}
}

// sameButSecurity compares all rows that the eraser leaves as they are.
func sameButSecurity(t require.TestingT, want, have map[string][]string, of string) {
	for _, table := range []string{"questions", "answers", "sessions", "session_links", "event_ledger"} {
		require.Equal(t, want[table], have[table], "%s, %s", of, table)
	}
}

// unread is what a publisher sends that states no fact.
func unread(session, ceID, ceType, body string) events.Envelope {
	return events.Envelope{Subject: events.SessionSubject(session), Body: []byte(body), Header: events.Header{
		events.HeaderID: {ceID}, events.HeaderType: {ceType}, events.HeaderSpecVersion: {"1.0"}}}
}

// goneFrom reports what the eraser takes out of a log: what names a redacted turn, descriptions that do not stand, and
// all of an erased session but its link and the erasure.
func goneFrom(l *journal) func(events.Recorded) bool {
	return func(e events.Recorded) bool {
		s := l.state(e.SessionID)
		if _, receipt := e.Fact.(*events.ErasureReceipt); receipt {
			return false
		}
		if s.Erased != 0 {
			return e.Position.Seq != s.LinkedAt && e.Position.Seq != s.Erased && !l.mark(e.SessionID, e.Position.Seq)
		}
		if e.Type == events.TypeSessionDescribed && e.Position.Seq != s.Description().DescribedAt {
			return true
		}
		return slices.ContainsFunc(named(e), func(turn uuid.UUID) bool {
			t := s.Turn(turn)
			return t != nil && (t.Redacted != 0 && t.Redacted != e.Position.Seq || e.Position.Seq < t.PrunedAt())
		}) || l.repeatsPruned(e)
	}
}

// repeatsPruned reports whether an event repeats one from before a prune of its turn.
func (j *journal) repeatsPruned(e events.Recorded) bool {
	s, err := j.fold(context.Background(), e.SessionID, e.Position.Seq-1)
	return err == nil && s.Fold(e).Reason == session.CodeTurnPruned
}

func named(e events.Recorded) []uuid.UUID {
	turn, replaces := session.Named(e)
	return slices.DeleteFunc([]uuid.UUID{turn, replaces}, func(id uuid.UUID) bool { return id == uuid.Nil })
}

func TestNoTextStays(t *testing.T) {
	t.Parallel()
	const marker = "MARKER-of-a-text"
	log := newJournal()
	secret := func(request string) *events.TurnStarted {
		return &events.TurnStarted{TurnID: id("s", request), SessionID: "s", RequestID: request,
			Question: events.Question{PipelineName: marker, Consultant: marker, Repository: marker,
				QuestionNeutral: marker, QuestionTranslated: marker, Metadata: []byte(`{"channel":"` + marker + `"}`),
				QuestionMessages: []byte(`[{"role":"user","content":"` + marker + `"}]`)}}
	}
	reply := func(request string) *events.TurnFinalized {
		return &events.TurnFinalized{TurnID: id("s", request), SessionID: "s",
			Metadata: []byte(`{"locale":"` + marker + `"}`), Answer: events.Answer{AnswerNeutral: marker,
				AnswerTranslated: marker, AnswerMessages: []byte(`[{"role":"tool","content":"` + marker + `"}]`)}}
	}
	log.add(linked("s", "u"), secret("r1"), reply("r1"), secret("r2"), reply("r2"), reply("r9"))
	log.publish(unread("s", marker+" in an id", marker+" in a type", marker))
	log.add(&events.LinkRefused{SessionID: "s", IdentityID: "thief", SourceHash: marker + " in a hash"})
	log.add(reply("r2"), secret("r1"))
	a := filled(t, log, 3)
	require.NotEmpty(t, a.holding(marker, "questions", "answers"), "the search finds what there is")
	require.Empty(t, a.holding(marker, "sessions", "session_links", "security_events",
		"projection_checkpoints"))
	require.Empty(t, a.column("select '' from turnledger.event_ledger t where (to_jsonb(t) - "+
		"'{pipeline_name,consultant,repository}'::text[])::text like '%' || $1 || '%'", marker),
		"the ledger names what a question came from, until it is redacted, and holds no text")

	// Statistics are taken while the texts stand.
	a.exec("vacuum analyze")
	require.Empty(t, a.column("select tablename || '.' || attname from pg_stats s where schemaname = 'turnledger' "+
		"and s::text like '%' || $1 || '%'", marker))

	log.redact("s", id("s", "r1"))
	f := claim(t, log, a)
	f.all(10)
	log.redact("s", id("s", "r2"))
	log.add(secret("r1"), reply("r2"))
	f.all(10)
	require.Empty(t, a.holding(marker, names...))

	log.publish(envelope(secret("r3")))
	f.park(a)
	require.Empty(t, a.holding(marker, names...))
}

// holding names the tables in which a text stands in any column.
func (a *tables) holding(text string, tables ...string) (out []string) {
	for _, table := range tables {
		rows := a.column("select t::text from " + a.name + "." + table + " t")
		if slices.ContainsFunc(rows, func(r string) bool { return strings.Contains(r, text) }) {
			out = append(out, table)
		}
	}
	return out
}

// belong keeps which turns of a session belong to the audit.
func belong(state *session.State, c session.Change, in map[uuid.UUID]bool) {
	back := c.Kind == session.TurnGone || c.Kind == session.Pruned || c.Kind == session.Described
	if c.Kind == session.Linked || back && c.NewBoundary && state.Identity != "" {
		for _, turn := range state.Turns {
			if turn.Place > c.Silence {
				in[turn.ID] = true
			}
		}
	}
	if state.Identity == "" {
		return
	}
	if c.Kind == session.Started || c.Kind == session.Recorded {
		in[c.Turn.ID] = true
	}
	if c.Kind == session.Corrected {
		in[c.Turn.ID] = in[c.Turns[0].ID]
	}
	if c.Kind == session.TurnGone || c.Kind == session.Pruned {
		for _, turn := range c.Turns {
			in[turn.ID] = c.Kind == session.TurnGone || in[c.Turn.ID]
		}
	}
}

// nasty are texts that some store or other can't hold.
var nasty = []string{
	"", " ", "\x00", "a\x00b\x00\x00", "␀", "␀0", "\x00␀0␀␀", "0\x000", "\\", `\u0000`, `"`, "\t\r\n", "é", "e\u0301",
	"ﷺ", "👩‍👩‍👧‍👦", "\uFFFD", "\uFFFF",
	"\u200b\u202e", "'; drop table turns; --", "{}", "null", "[", "%s", strings.Repeat("long ", 2000),
}

// nastyJSON are values that jsonb or json can't hold as they are, and some that they can.
func nastyJSON() []string {
	return []string{
		`"\u0000"`, `"a\u0000\u0000b"`, `"␀"`, `"␀0\u2400"`, `"\\u0000"`, `"😀"`, `1`, `-0.0`, `1e5`, `1.10`,
		`123456789012345678901234567890`,
		`true`, `null`, `""`, `{"a":{"b":[1,2,{"c":null}]}}`, `{"\u0000":"\u0000","␀":1}`, `[]`, `{}`,
		`"` + strings.Repeat("[", 2000) + `"`, `"<>&"`,
	}
}

func TestTextsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i, text := range nasty {
		for j := range 2 {
			request := fmt.Sprintf("r%d-%d", i, j)
			log.add(&events.TurnStarted{TurnID: id("s", request), SessionID: "s", RequestID: request,
				Question: events.Question{
					PipelineName: text, Consultant: text, Repository: text, QuestionNeutral: "q" + text,
					QuestionTranslated: text,
				}})
			if j == 1 {
				log.add(&events.TurnFinalized{TurnID: id("s", request), SessionID: "s",
					Answer: events.Answer{AnswerNeutral: "a" + text, AnswerTranslated: text}})
			}
		}
	}
	sameSession(t, filled(t, log, 1000), log, "s")
}

//conformance:h30
func TestMessagesKeepTheirBytesAndMetadataItsMeaning(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i, value := range nastyJSON() {
		request := fmt.Sprint("r", i)
		messages := json.RawMessage(`[{"role":"user", "role":"user","content":` + value + `}]`)
		log.add(
			&events.TurnStarted{TurnID: id("s", request), SessionID: "s", RequestID: request, Question: events.Question{
				QuestionNeutral: "q", QuestionMessages: messages, Metadata: json.RawMessage(`{"b":` + value +
					`, "aa":1, "c":` + value + `}`),
			}},
			&events.TurnFinalized{TurnID: id("s", request), SessionID: "s", Answer: events.Answer{AnswerNeutral: "a",
				AnswerMessages: messages},
				Metadata: json.RawMessage(`{"c":2,"d":` + value + `}`)},
		)
	}
	for split, most := range splits {
		t.Run(split, func(t *testing.T) {
			t.Parallel()
			sameSession(t, filled(t, log, most), log, "s")
		})
	}
}

// What no store and no other reader could take for what it was is bounded, and stops nothing.
func TestWhatIsNoValueIsWrittenAsText(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	env := envelope(started("s", "r1"))
	env.Body = []byte(strings.NewReplacer(`"web"`, `1e999999`, `"pl"`, `"\ud800`+"\xff"+`"`, `"question r1"}]`,
		"\"\xff\xfe\"}]").Replace(string(env.Body)))
	require.Empty(t, log.publish(env).Problem)
	a := filled(t, log, 10)
	require.Equal(t, []string{`{"locale": "` + "\uFFFD\uFFFD" + `", "channel": "1e999999"}`},
		a.column("select metadata::text from turnledger.turns where request_id = 'r1'"))
	require.Equal(t, []string{"[{\"role\":\"user\",\"content\":\"\uFFFD\"}]"},
		a.column("select question_messages::text from turnledger.turns where request_id = 'r1'"))
}

// Ids of events that state no fact obey no rule.
func TestAnyIDIsTaken(t *testing.T) {
	t.Parallel()
	log := newJournal()
	for _, session := range []string{"\x00", "\xff\xfe", strings.Repeat("x", 4000), ".", "a\nb"} {
		log.publish(events.Envelope{Subject: events.SessionSubject(session), Header: events.Header{
			events.HeaderID: {"\x00\xff " + session}, events.HeaderType: {session}, events.HeaderSpecVersion: {"1.0"},
		}})
		log.publish(events.Envelope{Subject: events.IdentitySubject(session), Header: events.Header{}})
	}
	a := open(t, log)
	f := claim(t, log, a)
	require.NoError(t, a.Park(t.Context(), f.batch(1), strings.Repeat("\x00\xffreason ", 1000)))
	f = claim(t, log, a)
	f.all(3)
	require.Equal(t, 9, a.count("event_ledger"))
	require.Equal(t, 9, a.count("security_events"))
	require.Equal(t, []string{"9"}, a.column("select count(*)::text from turnledger.event_ledger where session_id is "+
		"null and identity_id is null"))
}

func TestAnyTextComesBack(t *testing.T) {
	t.Parallel()
	a := open(t, newJournal())
	rapid.Check(t, func(t *rapid.T) {
		log := newJournal()
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0, '␀', '0', '\\', '"'})))
		log.add(linked("s", "u"))
		for i := range 10 {
			request := fmt.Sprint("r", i)
			said := must.Get(json.Marshal(map[string]string{text.Draw(t, "key"): text.Draw(t, "value")}))(t)
			log.add(
				&events.TurnStarted{TurnID: id("s", request), SessionID: "s", RequestID: request,
					Question: events.Question{
						QuestionNeutral: "q" + text.Draw(t, "question"), QuestionMessages: fmt.Appendf(nil, "[%s]",
							said),
						Metadata: said,
					}},
				&events.TurnFinalized{TurnID: id("s", request), SessionID: "s",
					Answer: events.Answer{AnswerNeutral: "a" + text.Draw(t, "answer")}, Metadata: said})
		}
		a.empty()
		claim(t, log, a).all(rapid.IntRange(1, 30).Draw(t, "batch"))
		sameSession(t, a, log, "s")
	})
}
