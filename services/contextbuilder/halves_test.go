package contextbuilder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// An answer whose words stand elsewhere than in its content is no missing half.
func TestNoAnswerVanishesFromTheAnthropicForm(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`[{"role":"assistant","content":[{"type":"refusal","refusal":"I can't"}]}]`: "I can't",
		`[{"role":"assistant","content":null,"refusal":"I won't"}]`:                 "I won't",
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sql","input":"select 1"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`: "select 1",
		`[{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{}"}}]`:                                                                                     "weather",
		`[{"role":"assistant","content":null,"audio":{"id":"a","transcript":"spoken words"}}]`:                                                                                          "spoken words",
		`[{"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}]`:                                                                                                        "(no text)",
		`[{"role":"assistant","content":"  "}]`:                                                            "(no text)",
		`[{"role":"assistant","content":null}]`:                                                            "(no text)",
		`[{"role":"assistant","content":[]},{"role":"assistant","content":"words after all"}]`:             "words after all",
		`[{"role":"assistant","content":[]},{"role":"system","content":"s"},{"role":"user","content":""}]`: "(no text)",
	} {
		turn := &conversation.Turn{Status: conversation.Finalized, Question: &events.Question{QuestionNeutral: "hi"},
			Answer: &events.Answer{AnswerMessages: []byte(answer)}}
		list := append(appendMessages(nil, turn, form{lang: services.Neutral}), message.New("user", "m"))
		_, out := message.Anthropic(list)
		require.Equal(t, "assistant", out[1].Role(), answer)
		require.Contains(t, string(out[1].JSON()), want)
	}
}

// Of what a client sends as its own history, a budget takes whole exchanges too.
func TestAClientsOwnHistoryIsCutBetweenExchanges(t *testing.T) {
	t.Parallel()
	list := func(roles string) (out []json.RawMessage) {
		for i, r := range roles {
			role := map[rune]string{'u': "user", 'a': "assistant"}[r]
			out = append(out, json.RawMessage(fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":"%c%d"}]}`, role, r, i)))
		}
		return out
	}
	for _, c := range []struct {
		roles    string
		messages int
		want     string
	}{
		{"uaua", 3, "u2 a3"},
		{"uaua", 4, "u0 a1 u2 a3"},
		{"uauau", 2, "u2 a3 u4"},
		{"uaaua", 4, "u3 a4"},
		{"uuaua", 4, "u1 a2 u3 a4"},
		{"uaaaa", 2, "u0 a1 a2 a3 a4"},
		{"auauu", 2, "u1 a2 u3 u4"},
		{"uuuu", 2, "u2 u3"},
		{"ua", 2, "u0 a1"},
		{"", 2, ""},
	} {
		for _, b := range []budget{{messages: c.messages}, {messages: 20, tokens: 5 * c.messages,
			count: func(string) int { return 1 }}} {
			out, _ := cleanHistory(list(c.roles), b)
			var got []string
			for _, m := range out {
				got = append(got, m.Text())
			}
			require.Equal(t, c.want, strings.Join(got, " "), "%s within %d", c.roles, c.messages)
		}
	}
}
