package message

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
)

func rawsOf(list []Message) (out []json.RawMessage) {
	for _, m := range list {
		out = append(out, m.JSON())
	}
	return out
}

// What models and gateways do to tool calls, and what becomes of it.
//
//conformance:f19
func TestToolCallsAreLegalForAnthropic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"ids used again, and ids and names that the API refuses": {`[
			{"role":"user","content":"one"},
			{"role":"assistant","content":"","tool_calls":[{"id":"call:1","function":{"name":"my tool","arguments":""}}]},
			{"role":"tool","tool_call_id":"call:1","content":"1"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"call:1","function":{"name":"f","arguments":"[2]"}}]},
			{"role":"tool","tool_call_id":"call:1","content":[{"type":"text","text":"2"}]},
			{"role":"user","content":"bye"}]`, `[
			{"role":"user","content":"one"},
			{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"my_tool","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"1"}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"call_1_2","name":"f","input":{"arguments":"[2]"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1_2","content":"2"},{"type":"text","text":"bye"}]}]`},
		"two calls, one result, and one that comes twice": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":"looking","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"b","content":"B"},
			{"role":"tool","tool_call_id":"b","content":"B again"},
			{"role":"user","content":"?"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"text","text":"looking"},{"type":"text","text":"[Tool call: f {}]"},{"type":"tool_use","id":"b","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"B"},{"type":"text","text":"[Tool result: B again]"},{"type":"text","text":"?"}]}]`},
		"what the assistant says behind its calls, and between their results": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":"I look.","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},
			{"role":"assistant","content":"Wait."},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"h","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"a","content":"A"},
			{"role":"tool","tool_call_id":"c","content":"C"},
			{"role":"assistant","content":"So."},
			{"role":"tool","tool_call_id":"b","content":"B"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"text","text":"[Tool call: g {}]"},{"type":"text","text":"Wait."},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"c","name":"h","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"A"},{"type":"tool_result","tool_use_id":"c","content":"C"}]},
			{"role":"assistant","content":"So."},
			{"role":"user","content":"[Tool result: B]"}]`},
		"blocks of Anthropic's own form": {`[
			{"role":"user","content":"find it"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"reasoning","text":"hm"},{"type":"text","text":"ok"},{"type":"tool_use","id":"t1","name":"f","input":{"q":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"found"}],"is_error":true}]},
			{"role":"assistant","content":[{"type":"text","text":"there"}]},
			{"role":"user","content":"thanks"}]`, `[
			{"role":"user","content":"find it"},
			{"role":"assistant","content":[{"type":"text","text":"ok"},{"type":"tool_use","id":"t1","name":"f","input":{"q":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"found","is_error":true}]},
			{"role":"assistant","content":"there"},
			{"role":"user","content":"thanks"}]`},
		"images, files, and what nobody knows": {`[
			{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.org/a.png"}},{"type":"image_url","image_url":{"url":"file:a.png"}},
				{"type":"image_url","image_url":{"url":"http://example.org/c.png"}},{"type":"file","file":{"filename":"a.pdf"}},{"type":"input_audio","input_audio":{}}]},
			{"role":"assistant","content":[{"type":"image_url","image_url":"https://example.org/b.png"},{"type":"refusal","refusal":"no"}]},
			{"role":"user","content":" \n"}]`, `[
			{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}},{"type":"text","text":"[Image sent: photo]"},
				{"type":"text","text":"[Image: http://example.org/c.png]"},
				{"type":"text","text":"[File sent: a.pdf]"},{"type":"text","text":"[input_audio]"}]},
			{"role":"assistant","content":[{"type":"text","text":"[Image: https://example.org/b.png]"},{"type":"text","text":"no"}]},
			{"role":"user","content":"(no text)"}]`},
		"images with their data, which only the request that is answered has": {`[
			{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"data:text/plain;base64,AAAA"}}]},
			{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}],"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,BBBB"}}]}]`, `[
			{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"text","text":"[Image sent: photo]"}]},
			{"role":"assistant","content":[{"type":"text","text":"[Image sent: photo]"},{"type":"tool_use","id":"a","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"BBBB"}}]}]}]`},
		"a model's thoughts, its own and those of others": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"anthropic.signature:sig","content":[{"type":"reasoning_text","text":"hm"}]}},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"anthropic.redacted:dark"}},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"of another"}},
			{"role":"assistant","content":null,"item":{"type":"web_search_call"}},
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"a","content":""},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"of another"}},
			{"role":"user","content":"?"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"dark"},{"type":"tool_use","id":"a","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"?"}]}]`},
		"thoughts that nothing follows": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"anthropic.signature:sig","content":[{"type":"reasoning_text","text":"hm"}]}},
			{"role":"user","content":"and?"},
			{"role":"assistant","content":"so"},
			{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"anthropic.redacted:dark"}},
			{"role":"user","content":"?"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":"(no text)"},
			{"role":"user","content":"and?"},
			{"role":"assistant","content":"so"},
			{"role":"user","content":"?"}]`},
		"arguments that are no string, and half a surrogate pair in them": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"n":12345678901234567890}}},{"id":"b","function":{"name":"g","arguments":"{\"half\":\"\\ud800\"}"}}]},
			{"role":"tool","tool_call_id":"a","content":"A"},
			{"role":"tool","tool_call_id":"b","content":"B"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"n":12345678901234567890}},{"type":"tool_use","id":"b","name":"g","input":{"half":"�"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"A"},{"type":"tool_result","tool_use_id":"b","content":"B"}]}]`},
		"the calls of old": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
			{"role":"function","name":"f","content":"done"}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":"[Tool call: f {}]"},
			{"role":"user","content":"[Tool result f: done]"}]`},
		"parts of Vercel's AI SDK, of both its forms": {`[
			{"role":"user","content":[{"type":"text","text":"weather?"}]},
			{"role":"assistant","content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"looking"},
				{"type":"tool-call","toolCallId":"a","toolName":"weather","input":{"city":"Oslo"}},{"type":"tool-call","toolCallId":"b","toolName":"time","args":{}},
				{"type":"tool-call","toolCallId":"c","toolName":"map","input":{}},{"type":"tool-call","toolCallId":"d","toolName":"lost","input":{"n":1}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"a","toolName":"weather","output":{"type":"json","value":{"rain":true}}},
				{"type":"tool-result","toolCallId":"b","toolName":"time","result":[12,30]},
				{"type":"tool-result","toolCallId":"c","toolName":"map","output":{"type":"error-text","value":"no map"}},
				{"type":"tool-result","toolCallId":"e","toolName":"other","output":{"type":"content","value":[{"type":"text","text":"who asked"}]}}]},
			{"role":"assistant","content":[{"type":"text","text":"I search."},{"type":"tool-call","toolCallId":"f","toolName":"search","input":{}},
				{"type":"tool-result","toolCallId":"f","toolName":"search","output":{"type":"text","value":"found"}},{"type":"text","text":"It rains."}]},
			{"role":"user","content":"thanks"}]`, `[
			{"role":"user","content":"weather?"},
			{"role":"assistant","content":[{"type":"text","text":"looking"},{"type":"text","text":"[Tool call: lost {\"n\":1}]"},{"type":"tool_use","id":"a","name":"weather","input":{"city":"Oslo"}},
				{"type":"tool_use","id":"b","name":"time","input":{}},{"type":"tool_use","id":"c","name":"map","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"{\"rain\":true}"},{"type":"tool_result","tool_use_id":"b","content":"[12,30]"},
				{"type":"tool_result","tool_use_id":"c","content":"no map","is_error":true},{"type":"text","text":"[Tool result other: who asked]"}]},
			{"role":"assistant","content":[{"type":"text","text":"I search."},{"type":"tool_use","id":"f","name":"search","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"f","content":"found"}]},
			{"role":"assistant","content":"It rains."},
			{"role":"user","content":"thanks"}]`},
		"failures without a word": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool-call","toolCallId":"a","toolName":"f","input":{}},{"type":"tool_use","id":"b","name":"g","input":{}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"a","toolName":"f","output":{"type":"execution-denied"}},
				{"type":"tool_result","tool_use_id":"b","is_error":true,"content":" "}]}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"(no text)","is_error":true},{"type":"tool_result","tool_use_id":"b","content":"(no text)","is_error":true}]}]`},
		"results as blocks in a message of a tool, and of a form that is none": {`[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
			{"role":"tool","content":[{"type":"tool_result","tool_use_id":"t","content":{"n":1}}]}]`, `[
			{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"{\"n\":1}"}]}]`},
	} {
		_, out := Anthropic(ParseList(json.RawMessage(c.in)))
		got := must.Get(json.Marshal(out))(t)
		require.JSONEq(t, c.want, string(got), name)
		require.NotContains(t, string(got), `\ud800`, name)
		require.Empty(t, prompttest.Anthropic(rawsOf(out)), name)
	}
}
