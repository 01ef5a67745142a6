package message_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events/message"
)

// TestEveryMessageIsMendedForResponses: the API takes what messages of any form become as its input.
func TestEveryMessageIsMendedForResponses(t *testing.T) {
	t.Parallel()
	official := func(any) error { return nil }
	if path := os.Getenv(openaitest.Variable); path != "" {
		official = openaitest.Request(t, path, "CreateResponse").Validate
	}
	rapid.Check(t, func(rt *rapid.T) {
		list := append(prompttest.DrawMessages(rt, 6), json.RawMessage(`{"role":"user","content":"now"}`))
		raw := must.Get(json.Marshal(message.Responses(message.ParseAll(list), true)))(t)
		var input []json.RawMessage
		var v any
		require.NoError(rt, json.Unmarshal(raw, &input))
		require.NoError(rt, json.Unmarshal(raw, &v))
		require.Empty(rt, prompttest.Responses(input), "%s", list)
		require.NoError(rt, official(map[string]any{"input": v}), "%s", list)
	})
}

func TestMessagesOfOtherFormsAreItems(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("i", 65)
	const called, answer = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`,
		`{"type":"function_call_output","call_id":"c","output":"1"}`
	for name, c := range map[string]struct{ in, want string }{
		"a call without an id": {
			`{"role":"assistant","tool_calls":[{"id":"","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"","content":"1"}`,
			`{"role":"assistant","content":"[Tool call: f {}]"},{"role":"user","content":"[Tool result: 1]"}`},
		"a name that the API refuses, of an item": {
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"get weather!","arguments":""}}],"item":{"type":"function_call"}},
			{"role":"tool","tool_call_id":"c","content":"1"}`,
			strings.Replace(called, `"f"`, `"get_weather_"`, 1) + "," + answer},
		"the output of a custom call that a chat's message is": {
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","custom":{"name":"sh","input":"ls"}}]},{"role":"tool","tool_call_id":"c","content":"1"}`,
			`{"type":"custom_tool_call","call_id":"c","name":"sh","input":"ls"},{"type":"custom_tool_call_output","call_id":"c","output":"1"}`},
		"long ids of earlier turns": {
			`{"role":"assistant","tool_calls":[{"id":"` + long + `","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"` + long + `","content":"1"}`,
			strings.ReplaceAll(called+","+answer, `"c"`, `"call_7db92d77e8b1d5ac593cd614244109b7"`)},
		"a role that there is not, and parts that say nothing": {
			`{"role":null,"content":"q","item":{"type":"web_search_call"}},
			{"role":"user","content":[{"type":"input_image","image_url":"ftp://x"},{"type":"input_file"},{"type":"input_audio","input_audio":{}}]}`,
			`{"role":"user","content":"q"},{"role":"user","content":[{"type":"input_text","text":"[Image sent: photo]"},
				{"type":"input_text","text":"[File sent]"},{"type":"input_text","text":"[input_audio]"}]}`},
	} {
		var list []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte("["+c.in+`,{"role":"user","content":"now"}]`), &list), name)
		raw := must.Get(json.Marshal(message.Responses(message.ParseAll(list), false)))(t)
		require.JSONEq(t, "["+c.want+`,{"content":"now","role":"user"}]`, string(raw), name)
	}
}
