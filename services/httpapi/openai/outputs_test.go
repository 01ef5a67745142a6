package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
)

// What tools answered to the newest turn, alone or with the message that called, goes to that turn with its history,
// whatever words stand beside the call and whatever the client sent before.
func TestOutputsOfTheNewestTurnAreShownItsHistory(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	user := func(text string) any { return map[string]any{"role": "user", "content": text} }
	before := []any{user("q1"), map[string]any{"role": "assistant", "content": "a1"}}
	for name, opening := range map[string][]any{
		"the client sent its history": append(before, user("q2")), "the client sent a question": {user("q2")},
	} {
		for _, way := range []string{"outputs", "with the message that called"} {
			id := name + " " + way
			m.says("a1")
			s.chatWith(id, before[:1])
			m.next = []services.AnswerPart{
				{Kind: services.PartText, Text: "I'll look"}, {Kind: services.PartCall, CallID: "c1", Name: "f", Text: "{}"},
			}
			a := s.chatWith(id, opening)
			require.Equal(t, "turn", became(a), id)
			calls := a.body["choices"].([]any)[0].(map[string]any)["message"]
			next := []any{map[string]any{"role": "tool", "tool_call_id": "c1", "content": "sunny"}}
			if way != "outputs" {
				next = append([]any{calls}, next...)
			}
			m.says("a2")
			a = s.chatWith(id, next)
			require.Equal(t, "extension", became(a), id)
			require.Equal(t, []string{"q1|a1", "q2|a2"}, s.said(id))
			prompt := m.prompts[len(m.prompts)-1].Messages
			require.Len(t, prompt, 6, "question, answer, question, words, call, output: %s", prompt)
			require.Contains(t, string(prompt[3]), "I'll look")
		}
	}
	m.says("a3")
	s.chatWith("other", before[:1])
	a := s.chatWith("other", []any{user("q1"), before[1], user("q2")})
	require.NotEqual(t, "none", became(a))
	a = s.chatWith("other", []any{map[string]any{"role": "tool", "tool_call_id": "unknown", "content": "sunny"}})
	require.Equal(t, "fork", became(a), "an output of no call of the newest turn is a history of its own")
}

// The name of a speaker stays with what was said: in the log, in the items, and in each later prompt.
func TestNamesOfSpeakersStay(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	m.says("a")
	said := func(name, text string) any { return map[string]any{"role": "user", "name": name, "content": text} }
	s.chatWith("chat", []any{said("Ann", "q1")})
	s.chatWith("chat", []any{said("Bob", "q2")})
	require.Equal(t, http.StatusCreated, s.do("POST", "/v1/sessions/native/turns", `{"request_id":"1",
		"question_neutral":"q1","answer_neutral":"a","question_messages":[{"role":"user","name":"Ann","content":"q1"}]}`).status)
	s.chatWith("native", []any{said("Bob", "q2")})
	for _, id := range []string{"chat", "native"} {
		require.Contains(t, string(s.turnsOf(id)[1].Question.QuestionMessages), `"name":"Bob"`)
		list := s.do("GET", "/v1/conversations/"+id+"/items?order=asc", "")
		require.Equal(t, "Ann", list.body["data"].([]any)[0].(map[string]any)["name"], list.body)
	}
	for _, p := range []services.Prompt{m.prompts[1], m.prompts[2]} {
		require.Contains(t, string(p.Messages[0]), `"name":"Ann"`)
		require.Contains(t, string(p.Messages[2]), `"name":"Bob"`)
	}
}

// A prompt that the client brings itself reaches an endpoint of chat completions as it came, with members and parts
// that nobody here knows.
func TestAPromptOfTheClientIsSentAsItCame(t *testing.T) {
	t.Parallel()
	const messages = `[{"role":"system","content":"S","cache_control":{"type":"ephemeral"}},
		{"role":"user","content":[{"type":"text","text":"q1"},
			{"type":"video_url","video_url":{"url":"https://example.org"}}]},
		{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"},"reasoning_content":"t"},
		{"role":"function","name":"f","content":"o"},{"role":"assistant","content":"a1","audio":{"id":"au"},"prefix":true},
		{"role":"user","content":"","extra":1},{"role":"user","content":"q2"}]`
	u, s := atUpstream(t)
	for name, headers := range map[string][]string{
		"no session": nil, "client": {"X-Turnledger-Session", "c", "X-Turnledger-History", "client"},
		"auto": {"X-Turnledger-Session", "a"}, "off": {"X-Turnledger-Session", "o", "X-Turnledger-History", "off"},
	} {
		a := s.do("POST", completions, `{"messages":`+messages+`}`, headers...)
		require.Equal(t, http.StatusOK, a.status, a.body)
		sent, err := json.Marshal(u.last()["messages"])
		require.NoError(t, err)
		require.JSONEq(t, messages, string(sent), name)
	}
}

// Behind a recorded history, too, what the system and the user say now is sent as it came.
func TestWhatIsSentBehindAHistoryIsSentAsItCame(t *testing.T) {
	t.Parallel()
	const system, question = `{"role":"system","content":"S","cache_control":{"type":"ephemeral"}}`, `{"role":"user",
		"content":[{"type":"text","text":"q2"},{"type":"video_url","video_url":{"url":"https://example.org"}}],"extra":1}`
	u, s := atUpstream(t)
	headers := []string{"X-Turnledger-Session", "s", "X-Turnledger-History", "server"}
	s.must("POST", completions, `{"messages":[{"role":"user","content":"q1"}]}`, headers...)
	s.must("POST", completions, `{"messages":[`+system+`,`+question+`]}`, headers...)
	sent, err := json.Marshal(u.last()["messages"])
	require.NoError(t, err)
	require.JSONEq(t, `[`+system+`,{"role":"user","content":"q1"},{"role":"assistant","content":"Hello"},`+question+`]`,
		string(sent))
}
