package contextbuilder

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// Calls that were made together stand in one message, right before their results, whatever stood between them. What
// only items say is left out, or stands before them.
func TestCallsOfItemsStandTogether(t *testing.T) {
	t.Parallel()
	answer := `[
		{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}}],"item":{"type":"function_call"},"item_ids":["fc_1"]},
		{"role":"assistant","content":null,"item":{"type":"reasoning"}},
		{"role":"assistant","content":null,"tool_calls":[{"id":"b","function":{"name":"f"}}],"item":{"type":"function_call"}},
		{"role":"tool","tool_call_id":"a","content":"1","item":{"type":"custom_tool_call_output"}},
		{"role":"tool","tool_call_id":"b","content":"2"},
		{"role":"assistant","content":"done","item_ids":["msg_1"]}]`
	turn := &conversation.Turn{Status: conversation.Finalized, Answer: &events.Answer{AnswerMessages: []byte(answer)}}
	for items, want := range map[bool]string{
		false: `[
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]},
			{"role":"tool","tool_call_id":"a","content":"1"},
			{"role":"tool","tool_call_id":"b","content":"2"},
			{"role":"assistant","content":"done"}]`,
		true: `[
			{"role":"assistant","content":null,"item":{"type":"reasoning"}},
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}],"item":{"type":"function_call"}},
			{"role":"tool","tool_call_id":"a","content":"1","item":{"type":"custom_tool_call_output"}},
			{"role":"tool","tool_call_id":"b","content":"2"},
			{"role":"assistant","content":"done"}]`,
	} {
		list := appendMessages(nil, turn, form{lang: services.Neutral, items: items})
		raw := must.Get(json.Marshal(rawsOf(list)))(t)
		require.JSONEq(t, want, string(raw))
		calls, results := looseEnds(list)
		require.Empty(t, calls)
		require.Empty(t, results)
	}
}

// A thought between a call and its result does not tear them.
func TestAThoughtTearsNothing(t *testing.T) {
	t.Parallel()
	calls, results := looseEnds(parseMessages(json.RawMessage(`[
		{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}}]},
		{"role":"assistant","content":null,"item":{"type":"reasoning"}},
		{"role":"tool","tool_call_id":"a","content":"1"}]`)))
	require.Empty(t, calls)
	require.Empty(t, results)
}
