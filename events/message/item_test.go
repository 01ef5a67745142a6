package message_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/message"
)

// parse returns an item in its normal form.
func parse(t *testing.T, raw string) message.Item {
	t.Helper()
	i := must.Get(message.ParseItem(json.RawMessage(raw)))(t)
	require.Nil(t, i.Check())
	return i.Normal()
}

// png is an image.
var png = "data:image/png;base64,iVBORw0KGgo" + strings.Repeat("A", 200)

// What is given back of an item, and what the log keeps of it.
//
//conformance:o8 o14 o21 o34 o71
func TestShapes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, item, message string }{
		"easy user": {`{"role":"user","content":"hi"}`,
			`{"type":"message","role":"user","status":"completed","content":[{"type":"input_text","text":"hi"}]}`,
			`{"role":"user","content":"hi"}`},
		"easy assistant": {`{"role":"assistant","content":"ho","phase":"final_answer"}`,
			`{"type":"message","role":"assistant","status":"completed","phase":"final_answer",
			  "content":[{"type":"output_text","text":"ho","annotations":[],"logprobs":[]}]}`,
			`{"role":"assistant","content":"ho","item":{"phase":"final_answer"}}`},
		"two texts": {`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}`,
			`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		"annotations": {`{"type":"message","id":"msg_1","role":"assistant","status":"incomplete",
			  "content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation"}]}]}`,
			`{"type":"message","id":"msg_1","role":"assistant","status":"incomplete",
			  "content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation"}],"logprobs":[]}]}`,
			`{"role":"assistant","content":"a",
			  "item":{"id":"msg_1","status":"incomplete","content":[{"annotations":[{"type":"url_citation"}]}]}}`},
		"an image": {`{"role":"user","content":[{"type":"input_image","image_url":"https://e.org/i"}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_image","image_url":"https://e.org/i","detail":"auto"}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://e.org/i"}}]}`},
		"an image's data": {`{"role":"user","content":[{"type":"input_image","image_url":"` + png + `"}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_image","image_url":null,"detail":"auto"},
			             {"type":"input_text","text":"[Image sent: photo]"}]}`,
			`{"role":"user","content":"[Image sent: photo]",
			  "item":{"content":[{"type":"input_image","image_url":null,"detail":"auto"},null]}}`},
		"a file's data": {`{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"JVBERi0="}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_file","filename":"a.pdf"},{"type":"input_text","text":"[File sent: a.pdf]"}]}`,
			`{"role":"user","content":"[File sent: a.pdf]",
			  "item":{"content":[{"type":"input_file","filename":"a.pdf"},null]}}`},
		"a file's data without a name": {`{"role":"user","content":[{"type":"input_file","file_data":"JVBERi0="},
			  {"type":"input_text","text":"what?"}]}`,
			`{"type":"message","role":"user","status":"completed","content":[{"type":"input_file"},
			  {"type":"input_text","text":"[File sent]"},{"type":"input_text","text":"what?"}]}`,
			`{"role":"user","content":[{"type":"text","text":"[File sent]"},{"type":"text","text":"what?"}],
			  "item":{"content":[{"type":"input_file"},null,null]}}`},
		"a file of which only the name came": {`{"role":"user","content":[{"type":"input_file","filename":"a.pdf"},
			  {"type":"input_text","text":"[File sent: a.pdf]"}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_file","filename":"a.pdf"},{"type":"input_text","text":"[File sent: a.pdf]"}]}`,
			`{"role":"user","content":"[File sent: a.pdf]",
			  "item":{"content":[{"type":"input_file","filename":"a.pdf"},null]}}`},
		"a file by its id": {`{"role":"user","content":[{"type":"input_file","file_id":"file-1","filename":"a.pdf"}]}`,
			`{"type":"message","role":"user","status":"completed",
			  "content":[{"type":"input_file","file_id":"file-1","filename":"a.pdf"}]}`,
			`{"role":"user","content":"[File sent: a.pdf]",
			  "item":{"content":[{"type":"input_file","file_id":"file-1","filename":"a.pdf"}]}}`},
		"a call": {`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`,
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"completed"}`,
			`{"role":"assistant","content":null,"item":{"type":"function_call"},
			  "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
		"an output": {`{"type":"function_call_output","call_id":"c","output":"ok"}`,
			`{"type":"function_call_output","call_id":"c","output":"ok","status":"completed"}`,
			`{"role":"tool","tool_call_id":"c","content":"ok"}`},
		"an output of parts": {`{"type":"function_call_output","call_id":"c",
			  "output":[{"type":"input_text","text":"ok"}]}`,
			`{"type":"function_call_output","call_id":"c","status":"completed",
			  "output":[{"type":"input_text","text":"ok"}]}`,
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"ok"}]}`},
		"a custom call": {`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`,
			`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`,
			`{"role":"assistant","content":null,"item":{"type":"custom_tool_call"},
			  "tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]}`},
		"its output": {`{"type":"custom_tool_call_output","call_id":"c","output":"x"}`,
			`{"type":"custom_tool_call_output","call_id":"c","output":"x"}`,
			`{"role":"tool","tool_call_id":"c","content":"x","item":{"type":"custom_tool_call_output"}}`},
		"reasoning": {`{"type":"reasoning","id":"rs_1","encrypted_content":"e"}`,
			`{"type":"reasoning","id":"rs_1","encrypted_content":"e","summary":[]}`,
			`{"role":"assistant","content":null,
			  "item":{"type":"reasoning","id":"rs_1","encrypted_content":"e","summary":[]}}`},
		"of tomorrow": {`{"type":"dream","x":[1,{"y":null}]}`, `{"type":"dream","x":[1,{"y":null}]}`,
			`{"role":"assistant","content":null,"item":{"type":"dream","x":[1,{"y":null}]}}`},
		"an image that was made": {`{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBOR"}`,
			`{"type":"image_generation_call","id":"ig_1","status":"completed","result":null}`,
			`{"role":"assistant","content":null,
			  "item":{"type":"image_generation_call","id":"ig_1","status":"completed","result":null}}`},
		"a screenshot": {`{"type":"computer_call_output","call_id":"c",
			  "output":{"type":"computer_screenshot","image_url":"` + png + `"}}`,
			`{"type":"computer_call_output","call_id":"c","status":"completed",
			  "output":{"type":"computer_screenshot"}}`,
			`{"role":"assistant","content":null,"item":{"type":"computer_call_output","call_id":"c",
			  "status":"completed",
			  "output":{"type":"computer_screenshot"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := parse(t, c.in)
			require.JSONEq(t, c.item, string(i.JSON()))
			require.JSONEq(t, c.message, string(i.Message()))
			requireBack(t, i)
		})
	}
}

// Messages that others recorded are items, too.
//
//conformance:o14
func TestItemsOfOtherMessages(t *testing.T) {
	t.Parallel()
	const text = `{"type":"message","role":"assistant","status":"completed",
		"content":[{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]}`
	const call = `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}","status":"completed"}`
	const output = `{"type":"function_call_output","call_id":"c","output":"o","status":"completed"}`
	for name, c := range map[string]struct {
		message string
		items   []string
	}{
		"text and calls": {`{"role":"assistant","content":"t","tool_calls":[
			{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
			{"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}}]}`, []string{text, call, call}},
		"the older form": {`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`,
			[]string{`{"type":"function_call","call_id":"f","name":"f","arguments":"{}","status":"completed"}`}},
		"its result": {`{"role":"function","name":"f","content":"o"}`,
			[]string{`{"type":"function_call_output","call_id":"f","output":"o","status":"completed"}`}},
		"blocks": {`{"role":"assistant","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"t"},
			{"type":"tool_use","id":"c","name":"f","input":{"a":1}}]}`, []string{text, call}},
		"a result's block": {`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"o"}]}`,
			[]string{output}},
		"of the AI SDK": {`{"role":"tool","content":"o","tool_call_id":"c"}`, []string{output}},
		"a refusal": {`{"role":"assistant","content":null,"refusal":"no"}`, []string{`{"type":"message",
			"role":"assistant","status":"completed","content":[{"type":"refusal","refusal":"no"}]}`}},
		"an item that is none": {`{"role":"assistant","content":"t","item":7}`, []string{text}},
		"nothing":              {`{}`, []string{`{"type":"message","role":"user","status":"completed","content":[]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := message.Items(json.RawMessage(c.message))
			require.Len(t, got, len(c.items))
			for n, want := range c.items {
				require.JSONEq(t, want, string(got[n].JSON()))
			}
		})
	}
}

// What an item is refused for, by the member's name.
func TestChecks(t *testing.T) {
	t.Parallel()
	const missing, wrongType, wrongValue = message.Missing, message.WrongType, message.WrongValue
	for raw, want := range map[string]message.Wrong{
		`{"role":"user"}`:                                              {Member: "content", Kind: missing},
		`{"role":"user","content":7}`:                                  {Member: "content", Kind: wrongType},
		`{"role":"user","content":[{}]}`:                               {Member: "content[0].type", Kind: missing},
		`{"role":"user","content":[7]}`:                                {Member: "content[0]", Kind: wrongType},
		`{"role":"user","content":[{"type":"input_text"}]}`:            {Member: "content[0].text", Kind: missing},
		`{"role":"robot","content":"x"}`:                               {Member: "role", Kind: wrongValue},
		`{"type":"function_call","call_id":"c"}`:                       {Member: "name", Kind: missing},
		`{"type":"function_call_output","call_id":"c","output":{}}`:    {Member: "output", Kind: wrongType},
		`{"type":"function_call_output","output":"o"}`:                 {Member: "call_id", Kind: missing},
		`{"type":"function_call_output","call_id":7,"name":"f"}`:       {Member: "call_id", Kind: wrongType},
		`{"type":"function_call","call_id":7,"name":"","arguments":1}`: {Member: "call_id", Kind: wrongType},
		`{"type":"item_reference"}`:                                    {Member: "id", Kind: missing},
		`{"type":"message","content":"x"}`:                             {Member: "role", Kind: missing},
		`{"type":"message","content":"x","role":null}`:                 {Member: "role", Kind: missing},
		`{"type":"message","content":"x","role":""}`:                   {Member: "role", Kind: wrongValue},
		`{"type":"message","content":"x","role":7}`:                    {Member: "role", Kind: wrongType},
	} {
		i, err := message.ParseItem(json.RawMessage(raw))
		require.NoError(t, err, raw)
		require.Equal(t, &want, i.Check(), raw)
		require.NotEmpty(t, i.Check().Error())
	}
	named, err := message.ParseItem(json.RawMessage(`{"type":"function_call_output","call_id":null,"name":"f","output":"o"}`))
	require.NoError(t, err)
	require.Nil(t, named.Check(), "OpenAI's document lets it name a tool in place of a call")
	for raw, want := range map[string]error{
		`7`: message.ErrNoObject, `null`: message.ErrNoObject, `{}`: message.ErrNoType, `{"type":7}`: message.ErrNoType,
		`{"type":null,"role":""}`: message.ErrNoType, `{"id":""}`: message.ErrNoType, `{"id":7}`: message.ErrNoType,
		`{"id":"msg_1","content":"x"}`: message.ErrNoType, `{"id":"rs_1","summary":[]}`: message.ErrNoType,
		`{"type":"x","y":` + strings.Repeat("[", 501) + strings.Repeat("]", 501) + `}`: message.ErrTooDeep,
	} {
		must.Fail(message.ParseItem(json.RawMessage(raw)))(t, want, raw)
	}
}

// What is shown only when it is asked for.
//
//conformance:o10
func TestIncludes(t *testing.T) {
	t.Parallel()
	for value, c := range map[string]struct{ item, without string }{
		"file_search_call.results": {`{"type":"file_search_call","results":[1]}`, `{"type":"file_search_call"}`},
		"web_search_call.results":  {`{"type":"web_search_call","results":[1]}`, `{"type":"web_search_call"}`},
		"web_search_call.action.sources": {`{"type":"web_search_call","action":{"type":"search","sources":[1]}}`,
			`{"type":"web_search_call","action":{"type":"search"}}`},
		"code_interpreter_call.outputs": {`{"type":"code_interpreter_call","outputs":[1]}`,
			`{"type":"code_interpreter_call","outputs":null}`},
		"reasoning.encrypted_content": {`{"type":"reasoning","summary":[],"encrypted_content":"e"}`,
			`{"type":"reasoning","summary":[]}`},
		"computer_call_output.output.image_url": {`{"type":"computer_call_output","output":{"image_url":"u"}}`,
			`{"type":"computer_call_output","output":{}}`},
		"message.input_image.image_url": {
			`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"https://e.org"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_image","image_url":null}]}`},
		"message.output_text.logprobs": {
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"t","logprobs":[1]}]}`,
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"t","logprobs":[]}]}`},
	} {
		require.Contains(t, message.KnownIncludes, value)
		i := must.Get(message.ParseItem(json.RawMessage(c.item)))(t)
		require.JSONEq(t, c.without, string(i.Shown(nil).JSON()), value)
		require.JSONEq(t, c.item, string(i.Shown(message.Includes{value: true}).JSON()), value)
	}
	require.Len(t, message.KnownIncludes, 8)
}

// TestAnImageOfAToolReachesAnEndpointOfResponses: the message with its data says that it is an item, also where nothing
// stands beside its chat form, so that the image is not described.
func TestAnImageOfAToolReachesAnEndpointOfResponses(t *testing.T) {
	t.Parallel()
	called := parse(t, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`)
	for _, detail := range []string{"low", "auto"} {
		i := parse(t, `{"type":"function_call_output","call_id":"c","output":"x"}`).With("output", []any{
			map[string]any{"type": "input_image", "image_url": png, "detail": detail},
		})
		sent, has := i.WithData()
		require.True(t, has)
		input := message.Responses(message.ParseAll([]json.RawMessage{called.Message(), sent}), false)
		require.Len(t, input, 2)
		require.JSONEq(t, `[{"type":"input_image","image_url":"`+png+`","detail":"`+detail+`"}]`, string(input[1]["output"]))
	}
}
