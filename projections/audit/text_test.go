package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

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
