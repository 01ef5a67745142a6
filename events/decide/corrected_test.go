package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

// TestACorrectionIsWhatMessagesSay: calls, results, system messages and images stay where they are, and of what the
// speaker said nothing is left, in either language.
func TestACorrectionIsWhatMessagesSay(t *testing.T) {
	t.Parallel()
	neutral, translated := "right", "juste"
	for name, c := range map[string]struct {
		role, before string
		c            Correct
		after        string
	}{
		"a plain answer": {
			"assistant", `[{"role":"assistant","content":"WRONG"}]`,
			Correct{AnswerNeutral: &neutral}, ``,
		},
		"a plain answer and its translation": {
			"assistant", `[{"role":"assistant","content":"world","translated":"FAUX"}]`,
			Correct{AnswerNeutral: &neutral, AnswerTranslated: &translated}, ``,
		},
		"a translation": {
			"assistant", `[{"role":"assistant","content":"world","translated":"FAUX","name":"x"}]`,
			Correct{AnswerTranslated: &translated}, `[{"role":"assistant","content":"world","translated":"juste","name":"x"}]`,
		},
		"a translation of several": {
			"assistant", `[{"role":"assistant","content":"a","translated":"FAUX","tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"R","translated":"r"},{"role":"assistant","content":"b","translated":"FAUX"}]`,
			Correct{AnswerTranslated: &translated},
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"R","translated":"r"},{"role":"assistant","content":"world","translated":"juste"}]`,
		},
		"a translation of a speech with a call": {
			"assistant", `[{"role":"assistant","content":"","tool_calls":[{"id":"c"}]},{"role":"assistant","content":"b","translated":"FAUX","x":1}]`,
			Correct{AnswerTranslated: &translated},
			`[{"role":"assistant","content":"","tool_calls":[{"id":"c"}]},{"role":"assistant","content":"b","translated":"juste","x":1}]`,
		},
		"a translation of no speech": {
			"assistant", `[{"role":"tool","content":"R"}]`,
			Correct{AnswerTranslated: &translated}, `[{"role":"tool","content":"R"}]`,
		},
		"a tool's work": {
			"assistant", `[{"role":"system","content":"s"},{"role":"assistant","content":"WRONG","reasoning":"WRONG","tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"R"},{"role":"assistant","content":"WRONG","refusal":"WRONG","name":"n"},{"role":"assistant","content":null}]`,
			Correct{AnswerNeutral: &neutral},
			`[{"role":"system","content":"s"},{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"R"},{"role":"assistant","content":"right","name":"n"}]`,
		},
		"a call alone": {
			"assistant", `[{"role":"assistant","content":null,"function_call":{"name":"f"}}]`,
			Correct{AnswerNeutral: &neutral}, `[{"role":"assistant","content":"right","function_call":{"name":"f"}}]`,
		},
		"results alone": {
			"assistant", `[{"role":"tool","content":"R"}]`,
			Correct{AnswerNeutral: &neutral}, `[{"role":"tool","content":"R"},{"role":"assistant","content":"right"}]`,
		},
		"a picture with words": {
			"user", `[{"role":"system","content":"s"},{"role":"user","content":"WRONG"},{"role":"user","content":[{"type":"text","text":"WRONG"},{"type":"image_url","image_url":{"url":"https://e.org/a.png"}},{"type":"text","text":"WRONG"}]}]`,
			Correct{QuestionNeutral: &neutral},
			`[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"right"},{"type":"image_url","image_url":{"url":"https://e.org/a.png"}}]}]`,
		},
		"blocks": {
			"assistant", `[{"role":"assistant","content":[{"type":"thinking","thinking":"WRONG"},{"type":"text","text":"WRONG"},{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"assistant","content":[{"type":"text","text":"WRONG"}]}]`,
			Correct{AnswerNeutral: &neutral},
			`[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"assistant","content":"right"}]`,
		},
	} {
		q := events.Question{QuestionNeutral: "hello", QuestionMessages: []byte(c.before)}
		a := events.Answer{AnswerNeutral: "world", AnswerMessages: []byte(c.before)}
		c.c.question(&q)
		c.c.answer(&a)
		after := a.AnswerMessages
		if c.role == "user" {
			after = q.QuestionMessages
		}
		if c.after == "" {
			require.Empty(t, after, name)
			continue
		}
		require.JSONEq(t, c.after, string(after), name)
		require.NotContains(t, string(after), "WRONG", name)
	}
}
