package message_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/events/message"
)

// TestEveryMessageIsMendedForAChat: what the log holds is what pipelines, imports and other libraries sent. An endpoint
// that is as strict as OpenAI's takes all of it.
func TestEveryMessageIsMendedForAChat(t *testing.T) {
	t.Parallel()
	const call, result = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		`{"role":"tool","tool_call_id":"c","content":"1"}`
	long, sum := `"`+strings.Repeat("i", 41)+`"`, sha256.Sum256([]byte(strings.Repeat("i", 41)))
	short := hex.EncodeToString(sum[:16])
	for name, c := range map[string]struct{ in, want string }{
		"no calls":    {`{"role":"assistant","content":"a","tool_calls":[]}`, `{"role":"assistant","content":"a"}`},
		"calls: null": {`{"role":"assistant","content":"a","tool_calls":null}`, `{"role":"assistant","content":"a"}`},
		"nothing said": {`{"role":"assistant","content":null},{"role":"user","content":[]}`,
			`{"role":"assistant","content":"(no text)"},{"role":"user","content":"(no text)"}`},
		"a refusal": {`{"role":"assistant","content":null,"refusal":"I won't.","annotations":[]}`,
			`{"role":"assistant","content":"I won't."}`},
		"speech": {`{"role":"assistant","content":null,"audio":{"id":"a","transcript":"Hello."}}`,
			`{"role":"assistant","content":"Hello."}`},
		"sounds": {
			`{"role":"user","content":[{"type":"input_audio","input_audio":1e400},{"type":"input_audio","input_audio":{"data":"aGk=","format":"ogg"}},{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}]}`,
			`{"role":"user","content":[{"type":"text","text":"[input_audio]"},{"type":"text","text":"[input_audio]"},{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}]}`},
		"numbers that no float64 holds": {
			`{"role":"user","content":[{"type":"text","text":"1e400","more":[-1E+999, 1e308, ` + strings.Repeat("1", 250) + `e60]}]}`,
			`{"role":"user","content":[{"type":"text","text":"1e400","more":["-1E+999",1e308,"` + strings.Repeat("1", 250) + `e60"]}]}`},
		"thoughts": {`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}`,
			`{"role":"assistant","content":[{"type":"text","text":"a"}]}`},
		"blocks of calls and results": {
			`{"role":"assistant","content":[{"type":"text","text":"on it"},{"type":"tool_use","id":"c","name":"f","input":{"x":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"1"}]},{"type":"text","text":"and?"}]}`,
			`{"role":"assistant","content":[{"type":"text","text":"on it"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
			{"role":"tool","tool_call_id":"c","content":"1"},{"role":"user","content":[{"type":"text","text":"and?"}]}`},
		"a call without a type, and arguments that are JSON": {
			`{"role":"assistant","content":"","tool_calls":[{"id":"c","index":0,"function":{"name":"get weather!","arguments":{"city":"Oslo"}}}]},` + result,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather_","arguments":"{\"city\":\"Oslo\"}"}}]},` + result},
		"a custom call whose name is none": {
			`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":{}},"function":{"name":"f","arguments":"{}"}}]},` + result,
			call + "," + result},
		"a call without arguments": {
			`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":""}}]},` + result, call + "," + result},
		"a call without an id": {
			`{"role":"assistant","tool_calls":[{"id":"","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"","content":"1"}`,
			`{"role":"assistant","content":"[Tool call: f {}]"},{"role":"user","content":"[Tool result: 1]"}`},
		"the older form of a call": {
			`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"1"}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_f","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"call_f","content":"1"}`},
		"a result that is JSON": {call + `,{"role":"tool","tool_call_id":"c","content":{"t":7},"name":"f"}`,
			call + `,{"role":"tool","tool_call_id":"c","content":"{\"t\":7}"}`},
		"results of the AI SDK": {
			`{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"f","input":{}},{"type":"tool-call","toolCallId":"d","toolName":"f","input":{}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"c","output":{"type":"text","value":"1"}},{"type":"tool-result","toolCallId":"d","output":{"type":"json","value":{"x":2}}}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				result + `,{"role":"tool","tool_call_id":"d","content":"{\"x\":2}"}`},
		"a result that comes twice": {
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				result + "," + result + `,{"role":"tool","tool_call_id":"d","content":"2"}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				result + `,{"role":"tool","tool_call_id":"d","content":"2"},{"role":"user","content":"[Tool result: 1]"}`},
		"names of speakers": {
			`{"role":"user","name":"Ann <Lee>","content":"a"},{"role":"user","name":"","content":"b"},{"role":"user","name":7,"content":"c"}`,
			`{"role":"user","name":"Ann_Lee_","content":"a"},{"role":"user","content":"b"},{"role":"user","content":"c"}`},
		"roles of other libraries": {
			`{"role":"human","content":"q"},{"role":"AI","content":"a"},{"role":"User","content":"b"},{"role":"narrator","content":"c"}`,
			`{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"b"},{"role":"user","content":"c"}`},
		"half a surrogate pair": {`{"role":"user","content":"cut \ud83d off \ud83d\ude00"}`,
			`{"role":"user","content":"cut � off 😀"}`},
		"half a pair in arguments": {
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"x\":\"\\ud83d\"}"}}]},` + result,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":\"�\"}"}}]},` + result},
		"what only Turnledger knows": {`{"role":"user","content":"a","translated":"b","item_ids":["x"]}`,
			`{"role":"user","content":"a"}`},
		"parts of items, and images": {
			`{"role":"user","content":["a",{"type":"input_text","text":"b"},{"type":"image","source":{"type":"url","url":"https://i.test/p"}},{"type":"video"},{"type":"text","text":""}]}`,
			`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"https://i.test/p"}},{"type":"text","text":"[video]"}]}`},
		"a tool of free text, and a name that the endpoint refuses": {
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","custom":{"name":"my shell","input":"ls"}}]},` + result,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","custom":{"name":"my_shell","input":"ls"}}]},` + result},
		"ids that are long, but for those of the turn under way": {
			strings.ReplaceAll(call+","+result, `"c"`, long) + `,{"role":"user","content":"next"},` + strings.ReplaceAll(call+","+result, `"c"`, long),
			strings.ReplaceAll(call+","+result, `"c"`, `"call_`+short+`"`) + `,{"role":"user","content":"next"},` +
				strings.ReplaceAll(call+","+result, `"c"`, long)},
		"images without an address that can be fetched": {
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://i.test/p"}},{"type":"image_url","image_url":{"url":"data:,"}}]}`,
			`{"role":"user","content":[{"type":"text","text":"[Image sent: photo]"},{"type":"text","text":"[Image sent: photo]"}]}`},
		"no message": {`7,"words"`, `{"role":"user","content":"(no text)"},{"role":"user","content":"(no text)"}`},
		// A model gets what it sent with a call, and what it thought before the call, while its turn is under way.
		"reasoning and members of a call": {
			`{"role":"user","content":"q"},{"role":"assistant","content":null,"item":{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],
				"item":{"extra_content":{"google":{"thought_signature":"s"}},"status":"completed"}},` + result,
			`{"role":"user","content":"q"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
				{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]},` + result},
		"reasoning of earlier turns": {
			`{"role":"assistant","content":null,"item":{"type":"reasoning","content":[{"text":"hm"}]}},` + call + "," + result +
				`,{"role":"assistant","content":"a","reasoning_content":"hm"},{"role":"user","content":"next"}`,
			call + "," + result + `,{"role":"assistant","content":"a"},{"role":"user","content":"next"}`},
	} {
		got := message.Chat(listOf(t, c.in))
		require.JSONEq(t, "["+c.want+"]", string(must.Get(json.Marshal(got))(t)), name)
		require.Empty(t, prompttest.Chat(got), name)
	}
}

func listOf(t *testing.T, messages string) []message.Message {
	t.Helper()
	var raws []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte("["+messages+"]"), &raws))
	return message.ParseAll(raws)
}

// TestNamesStandInFrontOfTexts: forms without names of speakers would make the votes of Ann and Bob anonymous.
func TestNamesStandInFrontOfTexts(t *testing.T) {
	t.Parallel()
	list := listOf(t, `{"role":"user","name":"Ann","content":"I vote yes"},{"role":"assistant","name":"chair","content":"noted"},
		{"role":"user","name":"Bob","content":[{"type":"text","text":"No"}]}`)
	_, other := message.Anthropic(list)
	require.JSONEq(t, `[{"role":"user","content":"Ann: I vote yes"},{"role":"assistant","content":"noted"},
		{"role":"user","content":[{"type":"text","text":"Bob:"},{"type":"text","text":"No"}]}]`, string(must.Get(json.Marshal(other))(t)))
	require.JSONEq(t, `[{"role":"user","content":"Ann: I vote yes"},{"role":"assistant","content":"noted"},
		{"role":"user","content":[{"type":"input_text","text":"Bob:"},{"type":"input_text","text":"No"}]}]`,
		string(must.Get(json.Marshal(message.Responses(list, false)))(t)))
}
