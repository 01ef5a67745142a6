package openai_test

import (
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
