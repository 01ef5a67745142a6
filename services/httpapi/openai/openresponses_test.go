package openai_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
)

// kinds check a value of a response by what the Open Responses specification calls its type.
var kinds = map[string]func(v any) bool{
	"string":  func(v any) bool { _, ok := v.(string); return ok },
	"boolean": func(v any) bool { _, ok := v.(bool); return ok },
	"number":  func(v any) bool { _, ok := v.(float64); return ok },
	"integer": func(v any) bool { n, ok := v.(float64); return ok && n == math.Trunc(n) },
	"list":    func(v any) bool { _, ok := v.([]any); return ok },
	"object":  func(v any) bool { _, ok := v.(map[string]any); return ok },
	"null":    func(v any) bool { return v == nil },
	"choice":  func(v any) bool { return v == "auto" || v == "none" || v == "required" },
}

// forms are the members that the Open Responses specification requires of its objects, and their types.
var forms = map[string]map[string]string{
	"response": {
		"id": "string", "object": "string", "created_at": "integer", "completed_at": "integer|null", "status": "string",
		"incomplete_details": "object|null", "model": "string", "previous_response_id": "string|null",
		"instructions": "string|null", "output": "list", "error": "object|null", "tools": "list",
		"tool_choice": "object|choice", "truncation": "string", "parallel_tool_calls": "boolean", "text": "object",
		"top_p": "number", "presence_penalty": "number", "frequency_penalty": "number", "top_logprobs": "integer",
		"temperature": "number", "reasoning": "object|null", "usage": "object|null", "max_output_tokens": "integer|null",
		"max_tool_calls": "integer|null", "store": "boolean", "background": "boolean", "service_tier": "string",
		"metadata": "object", "safety_identifier": "string|null", "prompt_cache_key": "string|null",
	},
	"tool": {"type": "string", "name": "string", "description": "string|null", "parameters": "object|null",
		"strict": "boolean|null"},
	"json_schema": {"type": "string", "name": "string", "schema": "object", "strict": "boolean"},
	"usage": {"input_tokens": "integer", "output_tokens": "integer", "total_tokens": "integer",
		"input_tokens_details": "object", "output_tokens_details": "object"},
	"message": {"type": "string", "id": "string", "status": "string", "role": "string", "content": "list"},
	"function_call": {"type": "string", "id": "string", "status": "string", "call_id": "string", "name": "string",
		"arguments": "string"},
	"output_text": {"type": "string", "text": "string", "annotations": "list", "logprobs": "list"},
}

// requireForm demands the members of a form.
func requireForm(t *testing.T, form string, v any) map[string]any {
	t.Helper()
	object, ok := v.(map[string]any)
	require.True(t, ok, "%s: %v", form, v)
	for name, want := range forms[form] {
		value, has := object[name]
		require.True(t, has, "%s has no %s", form, name)
		fits := false
		for kind := range strings.SplitSeq(want, "|") {
			fits = fits || kinds[kind](value)
		}
		require.True(t, fits, "%s.%s is %v, and should be %s", form, name, value, want)
	}
	return object
}

// requireOpenResponse demands a completed response whose form is that of the specification, and which has an item of a
// type.
func requireOpenResponse(t *testing.T, r any, output string) {
	t.Helper()
	response := requireForm(t, "response", r)
	require.Equal(t, "completed", response["status"])
	requireForm(t, "usage", response["usage"])
	for _, tool := range response["tools"].([]any) {
		requireForm(t, "tool", tool)
	}
	format := response["text"].(map[string]any)["format"].(map[string]any)
	if format["type"] == "json_schema" {
		requireForm(t, "json_schema", format)
	}
	var types []any
	for _, item := range response["output"].([]any) {
		kind := item.(map[string]any)["type"].(string)
		types = append(types, kind)
		requireForm(t, kind, item)
		parts, _ := item.(map[string]any)["content"].([]any)
		for _, part := range parts {
			requireForm(t, "output_text", part)
		}
	}
	require.Contains(t, types, output)
}

// What the suite of the Open Responses specification asks of a server, by HTTP and without compaction. Its own tool
// calls and its image are in the bodies.
func TestTheOpenResponsesSpecification(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	const tool = `"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":` +
		`{"location":{"type":"string"}},"required":["location"]}}]`
	asked := func(members string) string {
		return `{"model":"echo",` + members + `,"input":[{"type":"message","role":"user","content":"What is the weather?"}]`
	}
	for name, c := range map[string]struct{ body, output string }{
		"text": {asked(`"store":true`), "message"},
		"a phase of an assistant": {`{"model":"echo","input":[{"type":"message","role":"assistant","phase":"commentary",` +
			`"content":"I look it up."},{"type":"message","role":"assistant","phase":"final_answer","content":"Four."},` +
			`{"type":"message","role":"user","content":"Repeat it."}]`, "message"},
		"streaming": {asked(`"stream":true`), "message"},
		"a system prompt": {`{"model":"echo","input":[{"type":"message","role":"system","content":"Be a pirate."},` +
			`{"type":"message","role":"user","content":"Hello."}]`, "message"},
		"a tool's call":           {asked(tool), "function_call"},
		"a tool's call, streamed": {asked(`"stream":true,` + tool), "function_call"},
		"an image": {`{"model":"echo","input":[{"type":"message","role":"user","content":[{"type":"input_text",` +
			`"text":"What is it?"},{"type":"input_image","image_url":"` + picture + `"}]}]`, "message"},
		"many turns": {`{"model":"echo","input":[{"type":"message","role":"user","content":"I am Al."},{"type":"message",` +
			`"role":"assistant","content":"Hello Al!"},{"type":"message","role":"user","content":"Who am I?"}]`, "message"},
		"a schema": {asked(`"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":null}}`),
			"message"},
		"penalties and a choice": {asked(`"presence_penalty":0.5,"frequency_penalty":-2,"tool_choice":{"type":"function",` +
			`"name":"get_weather"},` + tool), "function_call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := s.do("POST", "/v1/responses", c.body+`}`)
			require.Equal(t, http.StatusOK, a.status, a.raw)
			response := a.body
			if strings.Contains(c.body, `"stream":true`) {
				stream := eventsOf(t, a.raw)
				response = stream[len(stream)-1]["response"].(map[string]any)
				requireForm(t, "response", stream[0]["response"])
			}
			requireOpenResponse(t, response, c.output)
			again := s.must("GET", "/v1/responses/"+response["id"].(string), "")
			requireOpenResponse(t, again, c.output)
			var sent map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.body+`}`), &sent))
			for _, penalty := range []string{"presence_penalty", "frequency_penalty"} {
				want := sent[penalty]
				if want == nil {
					want = 0.0
				}
				require.Equal(t, want, again[penalty])
			}
		})
	}
}
