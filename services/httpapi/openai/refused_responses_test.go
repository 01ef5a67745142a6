package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
)

//conformance:o5 o6 o11 o24 o50 o53
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	for body, want := range map[string][3]string{
		`[]`:              {"400", "", ""},
		`{}`:              {"400", "missing_required_parameter", "input"},
		``:                {"400", "missing_required_parameter", "input"},
		`{"store":false}`: {"400", "missing_required_parameter", "input"},
		`{"store":false,"instructions":"x","conversation":"` + id + `"}`: {"400", "missing_required_parameter",
			"input"},
		`{"input":[]}`:                      {"400", "missing_required_parameter", "input"},
		`{"conversation":"` + id + `"}`:     {"400", "missing_required_parameter", "input"},
		`{"previous_response_id":"resp_1"}`: {"400", "missing_required_parameter", "input"},
		`{"conversation":"` + id + `","input":[{"type":"compaction_trigger"}]}`: {"400", "missing_required_parameter",
			"input"},
		`{"input":"a","conversation":"` + id + `","previous_response_id":"resp_1"}`: {"400",
			"mutually_exclusive_parameters", ""},
		`{"input":"a","previous_response_id":"resp_1"}`: {"400", "previous_response_not_found",
			"previous_response_id"},
		`{"input":"a","previous_response_id":"resp_000000000000010000000000000000000000000000000002"}`: {"400",
			"previous_response_not_found", "previous_response_id"},
		`{"input":"a","conversation":"conv_none"}`: {"404", "", ""},
		`{"input":"a","conversation":""}`:          {"404", "", ""},
		`{"input":"a","conversation":{"id":""}}`:   {"404", "", ""},
		`{"input":"a","conversation":{}}`:          {"400", "invalid_type", "conversation"},
		`{"input":"a","conversation":7}`:           {"400", "invalid_type", "conversation"},
		`{"input":"a","previous_response_id":""}`: {"400", "previous_response_not_found",
			"previous_response_id"},
		`{"input":"a","previous_response_id":7}`:  {"400", "invalid_type", "previous_response_id"},
		`{"input":7}`:                             {"400", "invalid_type", "input"},
		`{"input":[7]}`:                           {"400", "invalid_type", "input[0]"},
		`{"input":[{"role":"user"}]}`:             {"400", "missing_required_parameter", "input[0].content"},
		`{"input":[{"role":"user","content":7}]}`: {"400", "invalid_type", "input[0].content"},
		`{"input":[{"type":"message","content":"x"}]}`: {"400", "missing_required_parameter",
			"input[0].role"},
		`{"input":"a","instructions":[{"type":"message","content":"x"}]}`: {"400", "invalid_value",
			"instructions"},
		`{"input":[{"role":"secret_value"}]}`: {"400", "invalid_value", "input[0].role"},
		`{"input":[{"type":"function_call","call_id":"c","arguments":"{}"}]}`: {"400", "missing_required_parameter",
			"input[0].name"},
		`{"input":"a","temperature":3}`: {"400", "decimal_above_max_value",
			"temperature"},
		`{"input":"a","temperature":"x"}`: {"400", "invalid_type", "temperature"},
		`{"input":"a","max_output_tokens":0}`: {"400", "integer_below_min_value",
			"max_output_tokens"},
		`{"input":"a","tools":[{"type":"web_search"}]}`: {"400", "unsupported_value", "tools[0].type"},
		`{"input":"a","tools":[{"type":"function"}]}`: {"400", "missing_required_parameter",
			"tools[0].name"},
		`{"input":"a","tool_choice":"maybe"}`:   {"400", "invalid_value", "tool_choice"},
		`{"input":"a","conversation":{"id":7}}`: {"400", "invalid_type", "conversation"},
		`{"input":"a","user":7}`:                {"400", "invalid_type", "user"},
		`{"input":"a","model":7}`:               {"400", "invalid_type", "model"},
		`{"input":"a","safety_identifier":[]}`:  {"400", "invalid_type", "safety_identifier"},
		`{"input":"a","prompt_cache_key":{}}`:   {"400", "invalid_type", "prompt_cache_key"},
		`{"input":"a","max_tool_calls":"x"}`:    {"400", "invalid_type", "max_tool_calls"},
		`{"input":"a","max_tool_calls":-1}`:     {"400", "integer_below_min_value", "max_tool_calls"},
		`{"input":"a","tool_choice":{"type":"function"}}`: {"400", "missing_required_parameter",
			"tool_choice.name"},
		`{"input":"a","top_logprobs":"x"}`:                           {"400", "invalid_type", "top_logprobs"},
		`{"input":"a","top_logprobs":21}`:                            {"400", "integer_above_max_value", "top_logprobs"},
		`{"input":"a","top_logprobs":-1}`:                            {"400", "integer_below_min_value", "top_logprobs"},
		`{"input":"a","top_logprobs":1}`:                             {"400", "unsupported_value", "top_logprobs"},
		`{"input":"a","include":["message.output_text.logprobs"]}`:   {"400", "unsupported_value", "include"},
		`{"input":"a","presence_penalty":2.5}`:                       {"400", "decimal_above_max_value", "presence_penalty"},
		`{"input":"a","frequency_penalty":-3}`:                       {"400", "decimal_below_min_value", "frequency_penalty"},
		`{"input":"a","context_management":[{"type":"compaction"}]}`: {"400", "unsupported_parameter", "context_management"},
		`{"input":"a","moderation":{"model":"m"}}`:                   {"400", "unsupported_parameter", "moderation"},
		`{"input":"a","tool_choice":"required"}`:                     {"400", "invalid_value", "tool_choice"},
		`{"input":"a","tool_choice":{"type":"function","name":"f"}}`: {"400", "invalid_value", "tool_choice"},
		`{"input":"a","tool_choice":{"type":"file_search"}}`:         {"400", "invalid_value", "tool_choice"},
		`{"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"custom","name":"f"}}`: {"400",
			"invalid_value", "tool_choice"},
		`{"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto",` +
			`"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]}}`: {"400", "invalid_value",
			"tool_choice"},
		`{"input":"a","service_tier":"x"}`:          {"400", "invalid_value", "service_tier"},
		`{"input":"a","service_tier":7}`:            {"400", "invalid_type", "service_tier"},
		`{"input":"a","truncation":""}`:             {"400", "invalid_value", "truncation"},
		`{"input":"a","reasoning":{"effort":"x"}}`:  {"400", "invalid_value", "reasoning.effort"},
		`{"input":"a","reasoning":{"effort":""}}`:   {"400", "invalid_value", "reasoning.effort"},
		`{"input":"a","reasoning":{"effort":7}}`:    {"400", "invalid_type", "reasoning"},
		`{"input":"a","reasoning":{"summary":"x"}}`: {"400", "invalid_value", "reasoning.summary"},
		`{"input":"a","text":{"verbosity":"x"}}`:    {"400", "invalid_value", "text.verbosity"},
		`{"input":"a","text":{"format":{"type":"x"}}}`: {"400", "invalid_value",
			"text.format.type"},
		`{"input":"a","text":{"format":{}}}`: {"400", "missing_required_parameter",
			"text.format.type"},
		`{"input":"a","text":{"format":{"type":"json_schema","schema":{}}}}`: {"400", "missing_required_parameter",
			"text.format.name"},
		`{"input":"a","text":{"format":{"type":"json_schema","name":"","schema":{}}}}`: {"400",
			"missing_required_parameter", "text.format.name"},
		`{"input":"a","text":{"format":{"type":"json_schema","name":"n"}}}`: {"400", "missing_required_parameter",
			"text.format.schema"},
		`{"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":null}}}`: {"400",
			"missing_required_parameter", "text.format.schema"},
		`{"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":7}}}`: {"400", "invalid_type",
			"text.format.schema"},
		`{"input":"a","safety_identifier":"` + strings.Repeat("é", 65) + `"}`: {"400", "string_above_max_length",
			"safety_identifier"},
		`{"input":"a","prompt":{"id":"p"}}`:           {"400", "unsupported_parameter", "prompt"},
		`{"input":"a","metadata":{"k":7}}`:            {"400", "invalid_type", "metadata"},
		`{"input":"a","metadata":{"k":null}}`:         {"400", "invalid_type", "metadata"},
		`{"input":"a","metadata":7}`:                  {"400", "invalid_type", "metadata"},
		`{"input":"a","metadata":{"":"v"}}`:           {"400", "invalid_value", "metadata"},
		`{"input":"a","metadata":{"k":"\u0000"}}`:     {"400", "invalid_value", "metadata"},
		`{"input":"a","metadata":{"\u0000":"v"}}`:     {"400", "invalid_value", "metadata"},
		`{"input":"a","metadata":{` + keys(17) + `}}`: {"400", "object_above_max_properties", "metadata"},
		`{"input":"a","metadata":{"` + strings.Repeat("k", 65) + `":"v"}}`: {"400", "property_name_above_max_length",
			"metadata"},
		`{"input":"a","metadata":{"k":"` + strings.Repeat("v", 513) + `"}}`: {"400", "string_above_max_length",
			"metadata"},
		`{"input":[` + many(501) + `]}`:                                 {"400", "array_above_max_length", "input"},
		`{"input":"a","include":["x"]}`:                                 {"400", "invalid_value", "include"},
		`{"input":"a","truncation":"x"}`:                                {"400", "invalid_value", "truncation"},
		`{"input":[{"type":"item_reference","id":"msg_secret_value"}]}`: {"404", "", "input[0].id"},
	} {
		a := s.do("POST", "/v1/responses", body)
		require.Equal(t, want[0], fmt.Sprint(a.status), "%s: %s", body, a.raw)
		e := a.body["error"].(map[string]any)
		got := [3]string{want[0]}
		got[1], _ = e["code"].(string)
		got[2], _ = e["param"].(string)
		require.Equal(t, want, got, body)
		require.NotContains(t, a.raw, "secret_value")
	}
	require.Empty(t, s.list(id, 10), "what is refused leaves nothing")
	first := s.must("POST", "/v1/responses", `{"input":"a"}`)["id"].(string)
	for call, want := range map[string][3]any{
		"POST /v1/responses/compact": {400, "unsupported_value", nil},
		"GET /v1/responses/resp_1":   {404, nil, nil}, "DELETE /v1/responses/resp_1": {404, nil, nil},
		"POST /v1/responses/resp_1/cancel": {404, nil, nil}, "GET /v1/responses/resp_1/input_items": {404, nil, nil},
	} {
		method, path, _ := strings.Cut(call, " ")
		a := s.do(method, path, `{}`)
		e := a.body["error"].(map[string]any)
		require.Equal(t, want, [3]any{a.status, e["code"], e["param"]}, call)
	}
	counted := s.must("POST", "/v1/responses/input_tokens", `{"input":"aaaa","previous_response_id":"`+first+`"}`)
	require.Greater(t, counted["input_tokens"], s.must("POST", "/v1/responses/input_tokens",
		`{"input":"aaaa"}`)["input_tokens"])
}

// A response that is not stored needs no input where its history has something.
//
//conformance:o56
func TestAnUnstoredResponseWithoutInput(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("asked before"))
	head := s.head()
	a := s.do("POST", "/v1/responses", `{"store":false,"conversation":"`+id+`"}`)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Contains(t, a.raw, "You said: asked before (0 messages before)")
	require.Equal(t, head, s.head())
}

// Members without a value, and members that nobody knows, are no reason for a refusal; the answer is valid (start holds
// each against the official document).
//
//conformance:o50
func TestMembersWithoutAValueAreTaken(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	for _, more := range []string{
		`"user":null,"model":null,"top_logprobs":null,"max_tool_calls":null,"service_tier":null,"truncation":null`,
		`"reasoning":{"effort":null,"summary":null},"text":{"format":null,"verbosity":null}`,
		`"reasoning":{},"text":{}`, `"reasoning":null,"text":null,"conversation":null`,
		`"reasoning":{"effort":"max","newer":1},"text":{"newer":1},"top_logprobs":0,"service_tier":"flex","newer":{},` +
			`"context_management":[],"moderation":null,"presence_penalty":null,"tool_choice":"none"`,
		`"safety_identifier":"` + strings.Repeat("é", 64) + `","user":"` + strings.Repeat("u", 65) + `"`,
		`"text":{"format":{"type":"json_schema","name":"n","schema":{}}}`, `"text":{"format":{"type":"json_object"}}`,
	} {
		a := s.do("POST", "/v1/responses", `{"input":"a",`+more+`}`)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", more, a.raw)
	}
}

// A response that is deleted is gone, and what came with it.
//
//conformance:o3
func TestADeletedResponseIsGone(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	r := s.must("POST", "/v1/responses", `{"input":"a","conversation":"`+id+`"}`)["id"].(string)
	require.Equal(t, map[string]any{"id": r, "object": "response", "deleted": true},
		s.must("DELETE", "/v1/responses/"+r, ""))
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/responses/"+r, "").status)
	require.Equal(t, http.StatusNotFound, s.do("DELETE", "/v1/responses/"+r, "").status)
	require.Empty(t, s.list(id, 10))
	require.Equal(t, "previous_response_not_found", s.do("POST", "/v1/responses",
		`{"input":"b","previous_response_id":"`+r+`"}`).body["error"].(map[string]any)["code"])
}

// A response whose input was several turns, as a client sends a history that it keeps itself, is deleted with all of
// them; what was there before it stays.
//
//conformance:o41
func TestADeletedResponseIsGoneWithAllItsTurns(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("kept"), function("c"))
	before := s.list(id, 10)
	input := strings.Join([]string{`{"type":"function_call_output","call_id":"c","output":"o"}`, user("q1"),
		assistant("a1"), user("q2"), assistant("a2"), user("q3")}, ",")
	r := s.must("POST", "/v1/responses", `{"input":[`+input+`],"conversation":"`+id+`"}`)["id"].(string)
	s.must("POST", "/v1/responses", `{"input":"kept, too","conversation":"`+id+`"}`)
	require.Len(t, s.list(id, 20), 11)
	s.must("DELETE", "/v1/responses/"+r, "")
	left := s.list(id, 20)
	require.Equal(t, before, left[:2])
	require.Equal(t, "kept, too", texts(left)[2])
	require.Len(t, left, 4)
}

// A response of somebody else is none, whatever a call does with its id.
//
//conformance:o53
func TestAResponseOfSomebodyElseIsNone(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.must("POST", "/v1/responses", `{"input":"a"}`)["id"].(string)
	stranger := services.Caller{May: func(context.Context, string) error { return services.ErrNoSession }}
	_, err := s.cfg.Responses.Response(t.Context(), id, stranger)
	require.ErrorIs(t, err, services.ErrNoResponse)
	_, err = s.cfg.Responses.DeleteResponse(t.Context(), id, stranger, services.Call{})
	require.ErrorIs(t, err, services.ErrNoResponse)
	_, err = s.cfg.Responses.InputItems(t.Context(), id, stranger, services.Paging{Limit: 1})
	require.ErrorIs(t, err, services.ErrNoResponse)
	for _, body := range []string{`{"input":"b","previous_response_id":"` + id + `"}`,
		`{"input":"b","store":false,"previous_response_id":"` + id + `"}`} {
		r, err := respond.Parse([]byte(body), respond.HostedTools(false), nil)
		require.NoError(t, err)
		_, err = respondAs(t, s, r, stranger)
		require.ErrorIs(t, err, services.ErrNoPrevious)
	}
	r, err := respond.Parse([]byte(`{"input":"b","conversation":"`+s.begin()+`"}`), respond.HostedTools(false), nil)
	require.NoError(t, err)
	_, err = respondAs(t, s, r, stranger)
	require.ErrorIs(t, err, services.ErrNoConversation)
}

// A response in the middle of a turn goes without the others.
//
//conformance:o62
func TestADeletedStepIsGone(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	tools := `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"conversation":"` + id + `"`
	first := s.must("POST", "/v1/responses", `{"input":"a",`+tools+`}`)
	call := first["output"].([]any)[0].(map[string]any)["call_id"].(string)
	second := s.must("POST", "/v1/responses", `{"input":[{"type":"function_call_output","call_id":"`+call+
		`","output":"o"}],`+tools+`}`)["id"].(string)
	before := s.list(id, 10)
	s.must("DELETE", "/v1/responses/"+second, "")
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/responses/"+second, "").status)
	require.Equal(t, before[:2], s.list(id, 10))
}

// The events of a stream come in OpenAI's order, and the pieces are the whole.
//
//conformance:o63
func TestTheEventsOfAStream(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Thoughts: "Hm.", Text: "I look.",
			Calls: []modeltest.Call{{ID: "c1", Name: "weather", Arguments: `{"city":"x"}`}}}
	})
	s := start(t, answeredBy(m))
	raw := s.do("POST", "/v1/responses", `{"stream":true,"input":"a"}`).raw
	var names []string
	for line := range strings.Lines(raw) {
		if name, is := strings.CutPrefix(line, "event: "); is {
			names = append(names, strings.TrimSpace(name))
		}
	}
	require.Equal(t, []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
		"response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done",
		"response.output_item.done",
		"response.output_item.added", "response.function_call_arguments.delta",
		"response.function_call_arguments.delta", "response.function_call_arguments.done",
		"response.output_item.done", "response.completed",
	}, slices.Clip(names))
	require.NotContains(t, raw, "[DONE]")
}

// A response whose turn goes while the model answers is not there any more: at once, and in a stream that has begun.
//
//conformance:o66
func TestAResponseThatGoesWhileItIsMade(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(s *stack, id string){
		"redacted": func(s *stack, id string) {
			s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[0]["turn_id"].(string)+"/redact", `{}`)
		},
		"erased": func(s *stack, id string) { s.must("DELETE", "/v1/conversations/"+id, "") },
	} {
		m := &answers{parts: []services.AnswerPart{told("late")}}
		s := start(t, answeredBy(m))
		for _, stream := range []string{"", `"stream":true,`} {
			id := s.begin()
			m.asked = func(services.Prompt) { take(s, id) }
			a := s.do("POST", "/v1/responses", `{`+stream+`"input":"secret_value","conversation":"`+id+`"}`)
			require.NotContains(t, s.logs.String(), "secret_value")
			if stream == "" {
				require.Equal(t, http.StatusNotFound, a.status, "%s: %s", what, a.raw)
				continue
			}
			all := eventsOf(t, a.raw)
			last := all[len(all)-1]
			require.NotEmpty(t, last["message"], what)
			delete(last, "message")
			require.Equal(t, map[string]any{
				"type": "error", "code": nil, "param": nil, "sequence_number": float64(len(all) - 1),
			}, last, what)
			require.Contains(t, a.raw, "event: error\n")
			require.NotContains(t, a.raw, "response.failed")
		}
	}
}

// A response on a conversation where another is being made waits for it, or is refused if the caller says so.
//
//conformance:o22
func TestABusyConversation(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		a := modeltest.Answer{Text: "the answer"}
		if strings.HasSuffix(prompt[len(prompt)-1], "slowly") {
			a.Hold = held
		}
		return a
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	var all sync.WaitGroup
	all.Go(func() { s.do("POST", "/v1/responses", `{"input":"slowly","conversation":"`+id+`"}`) })
	<-model.Asked
	refused := s.do("POST", "/v1/responses", `{"input":"b","conversation":"`+id+`"}`, "X-Turnledger-On-Pending",
		string(services.Reject))
	require.Equal(t, "conversation_locked", refused.body["error"].(map[string]any)["code"])
	all.Go(func() {
		s.do("POST", "/v1/responses", `{"input":"c","conversation":"`+id+`"}`)
	})
	close(held)
	all.Wait()
	require.Equal(t, []string{"user: slowly", "assistant: the answer", "user: c"}, <-model.Asked)
	require.Equal(t, []string{"slowly", "the answer", "c", "the answer"}, texts(s.list(id, 10)))
}

func respondAs(t *testing.T, s *stack, r respond.Request, who services.Caller) (services.Answered, error) {
	t.Helper()
	r.Caller = who
	return s.cfg.Responses.Respond(t.Context(), r.StepAsk, services.Quiet{})
}
