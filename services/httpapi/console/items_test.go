package console_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
)

// recorded returns items as the log keeps them.
func recorded(t *testing.T, list ...string) json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	for _, raw := range list {
		i, err := message.ParseItem(json.RawMessage(raw))
		require.NoError(t, err)
		all = append(all, i.Normal().Message())
	}
	raw, err := json.Marshal(all)
	require.NoError(t, err)
	return raw
}

// Items that clients of OpenAI's API write are shown for what they are.
func TestItemsOfAConversation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	_, err := s.services.History.StartTurn(t.Context(), conversation.Start{
		SessionID: "s", RequestID: "r", Question: events.Question{QuestionNeutral: "q", QuestionMessages: recorded(t,
			`{"type":"message","role":"developer","content":"Be short."}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"What is in it?"},
				{"type":"input_image","image_url":"https://elsewhere.example/cat.png"},
				{"type":"input_file","file_id":"file-1","filename":"report.pdf"}]}`)},
		Answer: &events.Answer{AnswerNeutral: "a", AnswerMessages: recorded(t,
			`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A thought."}]}`,
			`{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Ulm\"}"}`,
			`{"type":"function_call_output","call_id":"c1","output":"18 degrees"}`,
			`{"type":"custom_tool_call","call_id":"c2","name":"shout","input":"loud words"}`,
			`{"type":"custom_tool_call_output","call_id":"c2","output":"LOUD WORDS"}`,
			`{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"cats"}}`,
			`{"type":"function_call_output","call_id":"elsewhere","output":"a result alone"}`,
			`{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I had better not."}]}`)},
	})
	require.NoError(t, err)
	a := s.page("/console/sessions/s", "")
	require.Equal(t, http.StatusOK, a.status)
	for _, want := range []string{
		`class="message system"><div class="role">developer</div><div class="text" dir="auto">Be short.`,
		"What is in it?\n[Image: https://elsewhere.example/cat.png]\n[File sent: report.pdf]",
		`Item: <bdi class="id">reasoning</bdi>`, "A thought.",
		`Tool: <bdi class="id">weather</bdi></summary><pre dir="auto">{&#34;city&#34;:&#34;Ulm&#34;}</pre>`,
		`result</div><pre dir="auto">18 degrees</pre>`,
		`Tool: <bdi class="id">shout</bdi></summary><pre dir="auto">loud words</pre>`,
		`result</div><pre dir="auto">LOUD WORDS</pre>`, `Item: <bdi class="id">web_search_call</bdi>`,
		`class="message tool"><div class="role">tool</div><div class="text" dir="auto">a result alone`,
		"I had better not.",
	} {
		require.Contains(t, a.body, want)
	}
}

// The messages of other vendors and of older clients, too, and what is no message at all.
func TestMessagesOfOtherForms(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	_, err := s.services.History.StartTurn(t.Context(), conversation.Start{
		SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q", QuestionTranslated: "Q", QuestionMessages: json.RawMessage(
			`[{"role":"user","content":"bare text"}]`)},
		Answer: &events.Answer{AnswerNeutral: "a", AnswerMessages: json.RawMessage(`[
			{"role":"assistant","content":[{"type":"text","text":"I look."},
				{"type":"tool_use","id":"t1","name":"lens","input":{"x":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"seen"}]},
			{"role":"assistant","content":null,"function_call":{"name":"old","arguments":"{}"}}]`)},
	})
	require.NoError(t, err)
	a := s.page("/console/sessions/s", "")
	for _, want := range []string{"bare text", "I look.", `Tool: <bdi class="id">lens</bdi>`,
		`result</div><pre dir="auto">seen</pre>`, `Tool: <bdi class="id">old</bdi>`, "No result in this turn."} {
		require.Contains(t, a.body, want)
	}
	translated := s.page("/console/sessions/s?language=translated", "").body
	require.Contains(t, translated, `<div class="text" dir="auto">Q</div>`)
	require.NotContains(t, translated, "bare text</div>")
	require.Contains(t, translated, "I look.", "a half without a translation is shown as it is")
}

// A session of the OpenAI surface says what it is, and a turn that messages were taken out of says so.
func TestKindsAndPrunes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	h := s.services.History
	_, err := h.DescribeSession(t.Context(), conversation.Describe{
		SessionID: "s", RequestID: "d", Kind: events.KindConversation,
	})
	require.NoError(t, err)
	turn, err := h.StartTurn(t.Context(), conversation.Start{SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q", QuestionMessages: recorded(t,
			`{"type":"message","role":"user","content":"one stays"}`,
			`{"type":"message","role":"user","content":"one goes"}`)}})
	require.NoError(t, err)
	require.NotContains(t, s.page("/console/sessions/s", "").body, "were taken out")
	_, err = h.PruneTurn(t.Context(), conversation.Prune{SessionID: "s", PruneID: "p", TurnID: turn.ID,
		Keep: func(m conversation.Message) json.RawMessage {
			if m.Number == 1 {
				return nil
			}
			return m.Raw
		}})
	require.NoError(t, err)
	a := s.page("/console/sessions/s", "").body
	for _, want := range []string{"<dt>Kind</dt><dd>conversation</dd>", "one stays",
		"some of its messages were taken out", `<span class="tag">pruned</span>`} {
		require.Contains(t, a, want)
	}
	require.NotContains(t, a, "one goes")
}

// A half whose items were deleted is no message; the other half stays.
func TestAHalfThatIsDeletedIsNotShown(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for session, half := range map[string]events.Half{"asked": events.HalfAnswer, "told": events.HalfQuestion} {
		_, err := s.services.History.StartTurn(t.Context(), conversation.Start{SessionID: session, RequestID: "r",
			Question: events.Question{QuestionNeutral: "words"}, Answer: &events.Answer{AnswerNeutral: "words"}})
		require.NoError(t, err)
		_, err = s.services.History.PruneTurn(t.Context(), conversation.Prune{SessionID: session,
			TurnID: events.TurnID(session, "r"), PruneID: "p", Keep: func(m conversation.Message) json.RawMessage {
				if m.Half == half {
					return nil
				}
				return m.Raw
			}})
		require.NoError(t, err)
		a := s.page("/console/sessions/"+session, "")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.body, `dir="auto">words`)
		require.Equal(t, 1, strings.Count(a.body, `<div class="role">`), session)
	}
}
