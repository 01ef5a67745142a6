package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
)

// A key, and the word of a retry, name a call of one caller on one route: another caller's call with the same key or
// the same body is another one.
//
//conformance:o36
func TestACallIsItsCallers(t *testing.T) {
	t.Parallel()
	callers := ring{"one": {Name: "one", Scopes: all}, "two": {Name: "two", Scopes: all}}
	s := start(t, func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
	id := s.as("one", "POST", "/v1/conversations", `{}`).body["id"].(string)
	path, body := "/v1/conversations/"+id+"/items", `{"items":[`+user("yes")+`]}`
	post := func(as string, header ...string) string {
		a := s.do("POST", path, body, append(header, "Authorization", "Bearer "+as)...)
		require.Equal(t, http.StatusOK, a.status, a.raw)
		return ids(a.body["data"].([]any))[0]
	}
	first := post("one", retry, "0")
	require.NotEqual(t, first, post("two", retry, "1"))
	first = post("one", "Idempotency-Key", "k")
	require.NotEqual(t, first, post("two", "Idempotency-Key", "k"))
	require.Equal(t, first, post("one", "Idempotency-Key", "k"))
	require.NotEqual(t, s.as("one", "POST", "/v1/conversations", `{}`).body["id"],
		s.do("POST", "/v1/conversations", `{}`, "Authorization", "Bearer two", retry, "1").body["id"])
}

// An id of a client stays if it has at most 64 characters that may stand in a path; the same one twice is refused.
//
//conformance:o17
func TestWhichIDsStay(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin()
	for given, stays := range map[string]bool{
		"msg_" + strings.Repeat("x", 60): true, "msg_" + strings.Repeat("x", 61): false, "msg_a/b": false,
		"msg_ä": false, "msg-1": true,
	} {
		got := ids(s.post(id, `{"role":"user","content":"q","id":"`+given+`"}`))[0]
		require.Equal(t, stays, got == given, given)
		require.Equal(t, got, s.must("GET", "/v1/conversations/"+id+"/items/"+got, "")["id"])
	}
	twice := `{"role":"user","content":"q","id":"msg_twice"}`
	a := s.do("POST", "/v1/conversations/"+id+"/items", `{"items":[`+twice+`,`+twice+`]}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	require.Equal(t, "item_already_in_conversation", a.body["error"].(map[string]any)["code"])
}

// An output goes to the newest turn that made its call, also where an older one made a call of the same id.
//
//conformance:o33
func TestAnOutputGoesToTheNewestCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q1"), function("c"), assistant("a1"), user("q2"), function("c"), assistant("a2"), user("q3"))
	s.post(id, `{"type":"function_call_output","call_id":"c","output":"late"}`)
	require.Equal(t, []string{"q1", "function_call", "a1", "q2", "function_call", "a2", "function_call_output", "q3"},
		texts(s.list(id, 100)))
	s.post(id, user("q4"), function("c"), `{"type":"function_call_output","call_id":"c","output":"o"}`)
	all := texts(s.list(id, 100))
	require.Equal(t, []string{"q4", "function_call", "function_call_output"}, all[len(all)-3:])
}

// strictRate refuses every call.
type strictRate struct{ asked []string }

func (r *strictRate) ByIdentity() bool { return true }

func (r *strictRate) Allow(kind, session, identity string) (time.Duration, bool) {
	r.asked = append(r.asked, kind+" "+session+" "+identity)
	return 1500 * time.Millisecond, false
}

// A caller that asks too often is told when to come again, in the words that OpenAI's clients obey. Nothing is written.
//
//conformance:o23
func TestACallerThatAsksTooOften(t *testing.T) {
	t.Parallel()
	rate := &strictRate{}
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	limited := startOn(t, s.log, answeredBy(answer.Echo{}), func(s *stack) { s.cfg.Limiter = rate })
	head := s.head()
	for path, body := range map[string]string{
		"/v1/conversations": `{}`, "/v1/conversations/" + id + "/items": `{"items":[` + user("q") + `]}`,
		"/v1/responses": `{"input":"q","conversation":"` + id + `"}`, "/v1/responses/input_tokens": `{"input":"q"}`,
	} {
		a := limited.do("POST", path, body)
		require.Equal(t, http.StatusTooManyRequests, a.status, "%s: %s", path, a.raw)
		e := a.body["error"].(map[string]any)
		require.Equal(t, []any{"rate_limit_error", "rate_limit_exceeded"}, []any{e["type"], e["code"]})
		require.Equal(t, []string{"2", "true"}, []string{a.header.Get("Retry-After"), a.header.Get("X-Should-Retry")})
	}
	require.Equal(t, head, s.head())
	require.ElementsMatch(t, []string{"turn  ", "turn  ", "turn " + id + " ", "turn " + id + " "}, rate.asked)
}

// answers is a model that answers with parts, and ends as they say.
type answers struct {
	answer.Echo

	parts  []services.AnswerPart
	finish services.Finish
	usage  *session.Usage
	asked  func(services.Prompt)
}

func (m answers) Answer(
	_ context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	if m.asked != nil {
		m.asked(p)
	}
	for n, part := range m.parts {
		emit(services.AnswerPiece{Part: n, AnswerPart: part})
	}
	return services.ModelAnswer{Parts: m.parts, Finish: m.finish, Usage: m.usage}, nil
}

func told(text string) services.AnswerPart {
	return services.AnswerPart{Kind: services.PartText, Text: text}
}

// eventsOf returns the events of a stream.
func eventsOf(t *testing.T, raw string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(raw) {
		if data, is := strings.CutPrefix(line, "data: "); is {
			var e map[string]any
			require.NoError(t, json.Unmarshal([]byte(data), &e))
			require.EqualValues(t, len(out), e["sequence_number"])
			out = append(out, e)
		}
	}
	return out
}

// An answer that was cut or filtered is incomplete: the response, its items, and the last events of its stream.
//
//conformance:o61 o63
func TestIncompleteAnswers(t *testing.T) {
	t.Parallel()
	for finish, reason := range map[services.Finish]string{
		services.FinishLength: "max_output_tokens", services.FinishFiltered: "content_filter",
	} {
		s := start(t, answeredBy(answers{parts: []services.AnswerPart{told("half")}, finish: finish}))
		whole := s.must("POST", "/v1/responses", `{"input":"q"}`)
		all := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true}`).raw)
		last := all[len(all)-1]
		require.Equal(t, "response.incomplete", last["type"])
		require.Equal(t, "incomplete", all[len(all)-2]["item"].(map[string]any)["status"])
		for _, r := range []map[string]any{whole, last["response"].(map[string]any),
			s.must("GET", "/v1/responses/"+whole["id"].(string), "")} {
			require.Equal(t, "incomplete", r["status"])
			require.Equal(t, map[string]any{"reason": reason}, r["incomplete_details"])
			require.Nil(t, r["completed_at"])
			require.Equal(t, "incomplete", r["output"].([]any)[0].(map[string]any)["status"])
		}
	}
}

// A stream that comes again has the whole answer in its events, a refusal and a call included.
//
//conformance:o40 o63
func TestAStreamThatComesAgain(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answers{finish: services.FinishStop, parts: []services.AnswerPart{
		told("a text"), {Kind: services.PartRefusal, Text: "a refusal"},
		{Kind: services.PartCall, CallID: "c", Name: "f", Text: `{"a":1}`},
		{Kind: services.PartCustomCall, CallID: "d", Name: "g", Text: "custom"},
	}}))
	const body = `{"input":"q","stream":true}`
	first := eventsOf(t, s.do("POST", "/v1/responses", body, retry, "0").raw)
	again := eventsOf(t, s.do("POST", "/v1/responses", body, retry, "1").raw)
	require.Equal(t, len(first), len(again))
	for n := range first {
		if n < 2 { // the response while it is made
			continue
		}
		require.Equal(t, first[n], again[n])
	}
}

// A request may leave only some of its tools to the model.
//
//conformance:o49
func TestAllowedTools(t *testing.T) {
	t.Parallel()
	var tools []string
	s := start(t, answeredBy(answers{parts: []services.AnswerPart{told("a")}, asked: func(p services.Prompt) {
		tools = nil
		for _, one := range p.Tools {
			tools = append(tools, one.Name)
		}
	}}))
	s.must("POST", "/v1/responses", `{"input":"q","tools":[{"type":"function","name":"f","parameters":{}},
		{"type":"function","name":"g","parameters":{}},{"type":"custom","name":"f"}],
		"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`)
	require.Equal(t, []string{"f"}, tools)
}

// Instructions that are items are the texts of these, one below the other.
//
//conformance:o49
func TestInstructionsOfItems(t *testing.T) {
	t.Parallel()
	system := ""
	s := start(t, answeredBy(answers{parts: []services.AnswerPart{told("a")}, asked: func(p services.Prompt) {
		system = p.System
		if len(p.Messages) > 1 {
			system = string(p.Messages[0])
		}
	}}))
	s.must("POST", "/v1/responses", `{"input":"q","instructions":[{"role":"developer","content":"be kind"},
		{"role":"developer","content":"be brief"}]}`)
	require.Contains(t, system, `be kind\n\nbe brief`)
}

// A request that is not stored sees the history up to the response that it names, and nothing that came behind it.
//
//conformance:o56
func TestAnUnstoredRequestSeesItsHistoryOnly(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	first := s.must("POST", "/v1/responses", `{"input":"a"}`)["id"].(string)
	s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+first+`"}`)
	for _, call := range []string{"", "/input_tokens"} {
		body := `{"input":"c","store":false,"previous_response_id":"` + first + `"}`
		a := s.must("POST", "/v1/responses"+call, body)
		if call == "" {
			require.Contains(t, fmt.Sprint(a["output"]), "You said: c (2 messages before)")
		}
	}
	// The client's copy of the question does not count twice in a conversation.
	id := s.begin(user("q"), function("c"))
	a := s.must("POST", "/v1/responses", `{"store":false,"conversation":"`+id+`","input":[`+user("q")+
		`,{"type":"function_call_output","call_id":"c","output":"o"}]}`)
	require.Contains(t, fmt.Sprint(a["output"]), "You said: o (2 messages before)")
}

// Nor does the client's copy of the question count twice behind a response that called a tool.
func TestAnUnstoredRequestBehindACallDropsARepeatedQuestion(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	asked := s.must("POST", "/v1/responses", `{"input":[`+user("q")+
		`],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]}`)
	call := asked["output"].([]any)[0].(map[string]any)["call_id"].(string)
	body := func(question string) string {
		return `{"store":false,"previous_response_id":"` + asked["id"].(string) + `","input":[` + question +
			`{"type":"function_call_output","call_id":"` + call + `","output":"o"}]}`
	}
	a := s.must("POST", "/v1/responses", body(user("q")+","))
	require.Contains(t, fmt.Sprint(a["output"]), "You said: o (2 messages before)")
	require.Equal(t, s.must("POST", "/v1/responses/input_tokens", body(""))["input_tokens"],
		s.must("POST", "/v1/responses/input_tokens", body(user("q")+","))["input_tokens"])
}

// What comes again is the user's own question only, not a developer's message of the same words.
//
//conformance:o59
func TestOnlyTheSameQuestionIsDropped(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("q"), function("c"))
	s.must("POST", "/v1/responses", `{"conversation":"`+id+`","input":[{"role":"developer","content":"q"},
		{"type":"function_call_output","call_id":"c","output":"o"}]}`)
	roles := []any{}
	for _, one := range s.list(id, 100) {
		roles = append(roles, one.(map[string]any)["role"])
	}
	require.Contains(t, roles, "developer")
}

// withClock has a model answer, by a clock of the test's.
func withClock(model services.Model, now func() time.Time) setting {
	return answeredAs(model, func(r *answer.Config) { r.Now = now })
}

// A response that no process answers has failed. Nobody goes on with it, and a conversation with it is free again after
// a while.
//
//conformance:o22 o57
func TestAResponseWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Status: http.StatusBadRequest} })
	now := time.Now()
	s := start(t, withClock(m, func() time.Time { return now }))
	id := s.begin()
	stream := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true,"conversation":"`+id+`"}`).raw)
	require.Equal(t, "response.failed", stream[len(stream)-1]["type"])
	response := stream[0]["response"].(map[string]any)["id"].(string)
	require.Equal(t, "failed", s.must("GET", "/v1/responses/"+response, "")["status"])
	a := s.do("POST", "/v1/responses", `{"input":"q","previous_response_id":"`+response+`"}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	require.Equal(t, "previous_response_id", a.body["error"].(map[string]any)["param"])
	body := `{"input":"r","conversation":"` + id + `"}`
	a = s.do("POST", "/v1/responses", body, "X-Turnledger-On-Pending", "reject")
	require.Equal(t, "conversation_locked", a.body["error"].(map[string]any)["code"])
	now = now.Add(3 * time.Minute)
	a = s.do("POST", "/v1/responses", body, "X-Turnledger-On-Pending", "reject")
	require.Equal(t, "model_failed", a.body["error"].(map[string]any)["code"], "it is asked")
}

// The input of a response is what its model saw: nothing that was redacted, nothing that came later, nothing of its
// answer, and of a branch what it shares.
//
//conformance:o42
func TestInputItems(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("gone"), assistant("gone, too"), user("q1"), assistant("a1"))
	r := s.must("POST", "/v1/responses", `{"input":"q2","conversation":"`+id+`"}`)["id"].(string)
	s.post(id, user("later"), assistant("later, too"))
	input := func(r string) []string {
		return texts(s.must("GET", "/v1/responses/"+r+"/input_items?order=asc&limit=100", "")["data"].([]any))
	}
	require.Equal(t, []string{"gone", "gone, too", "q1", "a1", "q2"}, input(r))
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[0]["turn_id"].(string)+"/redact", `{}`)
	require.Equal(t, []string{"q1", "a1", "q2"}, input(r))
	branch := s.must("POST", "/v1/responses", `{"input":"b1","previous_response_id":"`+r+`"}`)["id"].(string)
	got := input(branch)
	require.Equal(t, []string{"q1", "a1", "q2"}, got[:3])
	require.Equal(t, "b1", got[len(got)-1])
	require.Len(t, got, 5, "with the answer that it goes on with")
	s.must("POST", "/v1/sessions/"+id+"/reset", `{}`)
	r = s.must("POST", "/v1/responses", `{"input":"anew","conversation":"`+id+`"}`)["id"].(string)
	require.Equal(t, []string{"anew"}, input(r))
}

// The usage of a turn is that of all its answers, also where a newer turn came while the model answered.
//
//conformance:o61 o81
func TestTheUsageOfATurn(t *testing.T) {
	t.Parallel()
	used := &session.Usage{Input: 12, Cached: 5, Output: 7, Reasoning: 3}
	call := services.AnswerPart{Kind: services.PartCall, CallID: "c", Name: "f", Text: "{}"}
	m := &answers{usage: used, parts: []services.AnswerPart{call}}
	s := start(t, answeredBy(m))
	id := s.begin()
	s.must("POST", "/v1/responses", `{"input":"q","conversation":"`+id+`"}`)
	require.Equal(t, *used, *session.UsageOf(metadataOf(t, s, id)))
	m.parts = []services.AnswerPart{told("done")}
	m.asked = func(services.Prompt) { s.post(id, user("newer"), assistant("newer")) }
	s.must("POST", "/v1/responses", `{"conversation":"`+id+`","input":[{"type":"function_call_output",
		"call_id":"c","output":"o"}]}`)
	require.Len(t, s.turns(id), 2)
	require.Equal(t, used.Plus(*used), *session.UsageOf(metadataOf(t, s, id)))
}

// metadataOf returns the metadata of a session's first turn.
func metadataOf(t *testing.T, s *stack, id string) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(s.turns(id)[0]["metadata"])
	require.NoError(t, err)
	return raw
}

// A bound key's responses are linked to its identity, so that it may read and continue them.
//
//conformance:o47
func TestResponsesOfABoundKey(t *testing.T) {
	t.Parallel()
	callers := ring{"ada": {Name: "ada", Scopes: all &^ access.Admin, IdentityID: "ada"}}
	s := start(t, answeredBy(answer.Echo{}), func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
	first := s.as("ada", "POST", "/v1/responses", `{"input":"a"}`).body["id"].(string)
	next := s.as("ada", "POST", "/v1/responses", `{"input":"b","previous_response_id":"`+first+`"}`)
	require.Equal(t, http.StatusOK, next.status, next.raw)
	branch := s.as("ada", "POST", "/v1/responses", `{"input":"c","previous_response_id":"`+first+`"}`)
	require.Equal(t, http.StatusOK, branch.status, branch.raw)
	for _, r := range []string{first, next.body["id"].(string), branch.body["id"].(string)} {
		require.Equal(t, http.StatusOK, s.as("ada", "GET", "/v1/responses/"+r, "").status)
	}
}
