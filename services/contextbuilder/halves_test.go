package contextbuilder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// An answer whose words stand elsewhere than in its content is no missing half.
func TestNoAnswerVanishesFromTheAnthropicForm(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`[{"role":"assistant","content":[{"type":"refusal","refusal":"I can't"}]}]`: "I can't",
		`[{"role":"assistant","content":null,"refusal":"I won't"}]`:                 "I won't",
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sql","input":"select 1"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`: "select 1",
		`[{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{}"}}]`:                                                                                     "weather",
	} {
		turn := &conversation.Turn{Status: conversation.Finalized, Question: &events.Question{QuestionNeutral: "hi"}, Answer: &events.Answer{AnswerMessages: []byte(answer)}}
		_, out := toAnthropic(append(appendMessages(nil, turn, Neutral), textMessage("user", "m")))
		require.Equal(t, "assistant", out[1].Role(), answer)
		require.Contains(t, string(out[1].JSON()), want)
	}
}
