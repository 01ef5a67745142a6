package conversation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// A raw publisher writes what it likes; no view shows it.
//
//conformance:h31 h32
func TestTheFoldDropsMetadataThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	facts := []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1", Question: events.Question{QuestionNeutral: "q",
			Metadata: json.RawMessage(`{"channel":"web","phone":"555"}`)}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"},
			Metadata: json.RawMessage(`{"email":"x","finish_reason":"length"}`)},
		&events.TurnCorrected{
			TurnID: events.TurnID("s", "c1"), SessionID: "s", RequestID: "c1", ReplacesTurnID: id,
			Question: events.Question{QuestionNeutral: "q", Metadata: json.RawMessage(`{"channel":"web"}`)},
			Answer:   events.Answer{AnswerNeutral: "b"},
		},
	}
	fold := func(keys []string) *conversation.State {
		s := conversation.New("s", conversation.Rules{MetadataKeys: keys})
		for i, f := range facts {
			env := must.Get(events.Encode(f, time.Now()))(t)
			e := events.Decode(env, events.Position{Seq: uint64(i + 1)}, time.Now())
			require.True(t, s.Fold(e).Kind.ChangesView())
		}
		return s
	}
	s := fold([]string{"channel", "locale"})
	require.JSONEq(t, `{"channel":"web","finish_reason":"length"}`, string(s.Turns[0].Metadata()), "but Turnledger's own")
	require.Equal(t, `{"channel":"web"}`, string(s.Turns[1].Metadata()))
	require.Empty(t, fold([]string{}).Turns[1].Metadata())
	require.JSONEq(t, `{"channel":"web","phone":"555","email":"x","finish_reason":"length"}`, string(fold(nil).Turns[0].Metadata()))
	require.Contains(t, string(facts[0].(*events.TurnStarted).Metadata), "phone", "the fact stays as it is")
}

// Turnledger's own keys are shown as it writes them, and hold nobody else's words.
func TestMetadataOfItsOwnIsNobodyElses(t *testing.T) {
	t.Parallel()
	r := conversation.Rules{MetadataKeys: []string{"channel"}}
	for _, raw := range []string{`{"question_neutral_is_fallback": true}`, `{"finish_reason": "interrupted"}`,
		`{"usage": {"input_tokens": 1, "output_tokens": 2, "cached_tokens": 1}}`} {
		require.Equal(t, raw, string(r.Metadata([]byte(raw))))
	}
	for _, raw := range []string{`{"question_neutral_is_fallback": "555"}`, `{"finish_reason": "555"}`, `{"finish_reason": {"length": "555"}}`,
		`{"usage": "555"}`, `{"usage": null}`, `{"usage": {"input_tokens": "555"}}`, `{"usage": {"phone": 555}}`,
		`{"usage": {"input_tokens": -1}}`, `{"usage": [{"input_tokens": 1}]}`} {
		require.Empty(t, r.Metadata([]byte(raw)))
	}
	r.MetadataKeys = []string{conversation.FinishKey}
	require.Equal(t, `{"finish_reason": "theirs"}`, string(r.Metadata([]byte(`{"finish_reason": "theirs"}`))),
		"it is allowed")
}

// Why the chat's answer ended is no more said of one that was corrected; where its question was, it still is.
func TestACorrectedAnswerIsWhole(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	s := conversation.New("s", conversation.Rules{})
	for i, f := range []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "q"}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}, Metadata: json.RawMessage(`{"channel":"web","finish_reason":"length","usage":{"input_tokens":1,"output_tokens":2}}`)},
	} {
		env := must.Get(events.Encode(f, time.Now()))(t)
		s.Fold(events.Decode(env, events.Position{Seq: uint64(i + 1)}, time.Now()))
	}
	text := "b"
	c := conversation.Correct{SessionID: "s", TurnID: id, RequestID: "c1", AnswerNeutral: &text}
	require.JSONEq(t, `{"channel":"web"}`,
		string(s.DecideCorrect(c, s.Turn(id)).Facts[0].(*events.TurnCorrected).Metadata))
	c.AnswerNeutral, c.QuestionNeutral = nil, &text
	require.JSONEq(t, `{"channel":"web","finish_reason":"length","usage":{"input_tokens":1,"output_tokens":2}}`, string(s.DecideCorrect(c, s.Turn(id)).Facts[0].(*events.TurnCorrected).Metadata))
}
