package message_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events/message"
)

// TestDrawnMessagesMakeLegalPrompts: what clients of all kinds send, bent, makes no prompt that an endpoint refuses.
func TestDrawnMessagesMakeLegalPrompts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		requireLegal(rt, append(prompttest.DrawMessages(rt, 6), json.RawMessage(`{"role":"user","content":"now"}`)))
	})
}

// requireLegal demands that messages make prompts that the vendors' endpoints take.
func requireLegal(t require.TestingT, raws []json.RawMessage) {
	require.Empty(t, prompttest.Chat(message.Chat(message.ParseAll(raws))), "%s", raws)
	_, other := message.Anthropic(message.ParseAll(raws))
	var out []json.RawMessage
	for _, m := range other {
		out = append(out, m.JSON())
	}
	require.Empty(t, prompttest.Anthropic(out), "%s", raws)
}

// FuzzRender holds that no list of messages makes a prompt that an endpoint refuses, in either form.
//
//conformance:f19
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":7}]},{"role":"tool","tool_call_id":"a"}`,
		`{"role":"assistant","tool_calls":[{"id":"a"},7,{"id":"a","custom":{"name":"c","input":"x"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"image"}]}`,
		`{"role":"function","name":"f","content":null},{"role":"ai","function_call":{"name":"f"}},{"role":"x","name":"a b","content":{}}`,
		`{"role":"assistant","content":[{"type":"tool-call","toolCallId":"z","toolName":"t","input":{"a":"\ud800"}},{"type":"tool-result","toolCallId":"z","output":{"type":"json","value":1}},{"type":"text","text":"end"}]}`,
		`{"role":"assistant","item":{"type":"reasoning","content":[{"text":"t"}]}},{"role":"assistant","content":"","tool_calls":[{"id":"q","function":{"name":"","arguments":"\ud800"}}],"item":{"extra":1}},{"role":"tool","tool_call_id":"q","content":""},{"role":"tool","tool_call_id":"q","content":"again"}`,
		`null,[],"text",7,{},{"role":null},{"role":"system","content":[{"type":"image_url","image_url":"https://x"}]},{"role":"developer","content":"d","name":"\u0000"}`,
		`{"role":"tool","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"a"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}`,
		`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"","arguments":"null"}}]},{"role":"tool","tool_call_id":"a"},{"role":"assistant","content":" "},{"role":"odd","content":7}`,
		`{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x"}},{"type":"image_url","image_url":7}]},{"role":"function"}`,
		`{"role":"assistant","content":[{"type":"tool-call","toolCallId":"a","toolName":"f","args":7},{"type":"tool-result","toolCallId":"a","result":{}},{"type":"text","text":"x"}]},{"role":"tool","content":[{"type":"tool-result","output":{"type":"json"}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true}]}`,
		`{"role":7},{"role":"system","content":null}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		var raws []json.RawMessage
		if json.Unmarshal([]byte("["+list+"]"), &raws) != nil || strings.Count(list, "[") > 200 {
			return
		}
		raws = append(raws, json.RawMessage(`{"role":"user","content":"now"}`))
		requireLegal(t, raws)
	})
}
