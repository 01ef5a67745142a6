package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
)

// agentsHistory returns the items of a conversation as the Agents SDK sends them again: messages of the user with an id
// and no type, messages of the assistant without an id, and all others with theirs.
func agentsHistory(s *stack, id string) (out []string) {
	for _, one := range s.must("GET", "/v1/conversations/"+id+"/items?order=asc&limit=100", "")["data"].([]any) {
		out = append(out, asAgents(s.t, one))
	}
	return out
}

func asAgents(t testing.TB, item any) string {
	t.Helper()
	i := item.(map[string]any)
	switch i["role"] {
	case "user":
		delete(i, "type")
		delete(i, "status")
	case "assistant":
		delete(i, "id")
	}
	raw, err := json.Marshal(i)
	require.NoError(t, err)
	return string(raw)
}

// respondTo asks for a response to items.
func (s *stack) respondTo(input []string, more ...string) map[string]any {
	s.t.Helper()
	return s.must("POST", "/v1/responses", `{"input":[`+strings.Join(input, ",")+`]`+strings.Join(more, "")+`}`)
}

// own returns the items that a session holds itself, and not by reference.
func (s *stack) own(session string) (out []string) {
	s.t.Helper()
	r, err := s.services.Reader.Read(s.t.Context(), services.Ask{SessionID: session, AllTurns: true, Own: true})
	require.NoError(s.t, err)
	for _, t := range r.State.Turns {
		var all []json.RawMessage
		if t.Question != nil {
			require.NoError(s.t, json.Unmarshal(t.Question.QuestionMessages, &all))
			out = append(out, rolesOf(all)...)
		}
		if t.Answer != nil {
			require.NoError(s.t, json.Unmarshal(t.Answer.AnswerMessages, &all))
			out = append(out, rolesOf(all)...)
		}
	}
	return out
}

func rolesOf(all []json.RawMessage) (out []string) {
	for _, raw := range all {
		var m struct {
			Role    string
			Content any
		}
		_ = json.Unmarshal(raw, &m)
		out = append(out, fmt.Sprintf("%s: %v", m.Role, m.Content))
	}
	return out
}

// given returns the items that a response was asked with, oldest first.
func (s *stack) given(response any) []any {
	s.t.Helper()
	path := "/v1/responses/" + response.(string) + "/input_items?order=asc&limit=100"
	return s.must("GET", path, "")["data"].([]any)
}

const tool = `,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]`

// A run of the Agents SDK sends the whole history of its session again, with each of its steps. What is sent again is
// shared and not copied: each step keeps what is new, and a deletion in the session reaches all responses.
//
//conformance:o43 o60
func TestAHistoryThatIsSentAgain(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "weather") {
			return modeltest.Answer{Calls: []modeltest.Call{{ID: "c9", Name: "f", Arguments: "{}"}}}
		}
		return modeltest.Answer{Text: "Sunny."}
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	s.post(id, user("my name is Ada"), function("c1"), `{"type":"function_call_output","call_id":"c1","output":"noted"}`,
		assistant("Hello Ada"))
	s.post(id, user("and I am 36"), assistant("Fine"))
	history := agentsHistory(s, id)
	before := s.list(id, 100)

	input := append(history, user("the weather?"))
	first := s.respondTo(input, tool)
	require.Equal(t, []string{"user: my name is Ada", "assistant: null", "tool: noted", "assistant: Hello Ada",
		"user: and I am 36", "assistant: Fine", "user: the weather?"}, <-model.Asked)
	session := s.sessionOf(first["id"].(string))
	require.Equal(t, []string{"user: the weather?", "assistant: <nil>"}, s.own(session), "the rest is shared")
	require.Equal(t, before, s.given(first["id"])[:6], "the items are the session's own")

	call := asAgents(t, first["output"].([]any)[0])
	input = append(input, call, `{"type":"function_call_output","call_id":"c9","output":"sun"}`)
	second := s.respondTo(input, tool)
	require.Equal(t, "tool: sun", last(<-model.Asked))
	require.Equal(t, session, s.sessionOf(second["id"].(string)), "the next step goes on with the one before")
	require.Equal(t, []string{"user: the weather?", "assistant: <nil>", "tool: sun", "assistant: Sunny."},
		s.own(session))
	require.Len(t, s.given(second["id"]), 9)

	gone := before[4].(map[string]any)["id"].(string)
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+gone, "")
	require.NotContains(t, texts(s.given(second["id"])), "and I am 36")
	s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+second["id"].(string)+`"}`)
	require.NotContains(t, strings.Join(<-model.Asked, "\n"), "36")
	s.must("DELETE", "/v1/conversations/"+id, "")
	require.Equal(t, []string{"the weather?", "function_call", "function_call_output"}, texts(s.given(second["id"])))
}

func last(lines []string) string { return lines[len(lines)-1] }

// A call that sends a history again, and comes again itself, has its first answer; the model is asked once.
//
//conformance:o60
func TestAHistoryThatIsSentAgainComesAgain(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		if strings.HasSuffix(last(prompt), "go") {
			return modeltest.Answer{Calls: []modeltest.Call{{ID: "c1", Name: "f", Arguments: "{}"}}}
		}
		return modeltest.Answer{Text: "Done."}
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	s.post(id, user("a"), assistant("b"))
	for _, history := range [][]string{agentsHistory(s, id), nil} {
		input := append(history, user("go"))
		for range 2 {
			body := `{"input":[` + strings.Join(input, ",") + `]` + tool + `}`
			first := s.must("POST", "/v1/responses", body, retry, "0")
			asked := len(model.Asked)
			require.Equal(t, first, s.must("POST", "/v1/responses", body, retry, "1"))
			require.Equal(t, asked, len(model.Asked))
			if output := first["output"].([]any); texts(output)[0] == "function_call" {
				input = append(input, asAgents(t, output[0]), `{"type":"function_call_output","call_id":"c1","output":"o"}`)
			}
		}
	}
}

// What is not sent as it is here, or not whole, is the caller's own text: it is kept as it came.
//
//conformance:o60
func TestAHistoryThatIsAnother(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin()
	s.post(id, user("a"), assistant("b"))
	s.post(id, user("c"), assistant("d"))
	whole := agentsHistory(s, id)
	for name, c := range map[string]struct {
		input []string
		own   int
	}{
		"whole":               {append(whole[:4:4], user("now")), 2},
		"only the first turn": {append(whole[:2:2], user("now")), 2},
		"a part of a turn":    {append(whole[:3:3], user("now")), 3},
		"another text in the second": {append(whole[:2:2], strings.Replace(whole[2], `"c"`, `"x"`, 1), whole[3],
			user("now")), 4},
		"without its beginning":   {append(whole[2:4:4], user("now")), 4},
		"without ids":             {[]string{user("a"), assistant("b"), user("now")}, 4},
		"by its texts and one id": {[]string{user("a"), assistant("b"), whole[2], whole[3], user("now")}, 2},
		"nothing new":             {whole, 3},
	} {
		r := s.respondTo(c.input)
		require.Len(t, s.own(s.sessionOf(r["id"].(string))), c.own, name)
		require.Len(t, <-model.Asked, len(c.input), name)
		require.Len(t, s.given(r["id"]), len(c.input), name)
	}
	// To a stranger the ids say nothing.
	request, err := respond.Parse([]byte(`{"input":[`+strings.Join(append(whole, user("now")), ",")+`]}`), false, nil)
	require.NoError(t, err)
	stranger := services.Caller{May: func(_ context.Context, session string) error {
		if session == id {
			return services.ErrNoSession
		}
		return nil
	}}
	request.Caller, request.RequestID, request.OnPending = stranger, "r", services.Enqueue
	theirs, err := s.cfg.Responses.Respond(t.Context(), request.StepAsk, services.Quiet{})
	require.NoError(t, err)
	require.Len(t, s.own(s.sessionOf(theirs.ResponseID)), 6)
	// A history of turns that a conversation has hidden from its prompts is none.
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/sessions/"+id+"/reset", `{}`).status)
	r := s.respondTo(append(whole, user("now")))
	require.Len(t, s.own(s.sessionOf(r["id"].(string))), 6)
}
