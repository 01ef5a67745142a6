package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is recorded through the native API is items here.
//
//conformance:o29 o42 o45
func TestNativeTurnsAreItems(t *testing.T) {
	t.Parallel()
	s := start(t)
	const session = "/v1/sessions/anna%2F1"
	turn := s.do("POST", session+"/turns", `{"request_id":"r1","question_neutral":"q1","answer_neutral":"a1"}`)
	require.Equal(t, http.StatusCreated, turn.status, turn.raw)
	s.do("POST", session+"/turns", `{"request_id":"r2","question_neutral":"q2","question_messages":[
		{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"q2"},
		{"type":"image_url","image_url":{"url":"https://example.org/i"}}]}]}`)
	s.do("POST", session+"/turns/"+s.turns("anna%2F1")[1]["turn_id"].(string)+"/finalize", `{"answer_messages":[
		{"role":"assistant","content":"let me see","tool_calls":[{"id":"c","type":"function",
			"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"o"}]}`)
	s.do("POST", session+"/turns", `{"request_id":"r3","question_neutral":"pending"}`)

	id := "anna%2F1"
	require.Equal(t, []string{"q1", "a1", "s", "q2", "let me see", "function_call", "function_call_output", "pending"},
		texts(s.list(id, 3)), "pending ones, too")
	got := s.must("GET", "/v1/conversations/"+id, "")
	require.Equal(t, "anna/1", got["id"])
	all := s.list(id, 100)
	for n, one := range ids(all) {
		require.Equal(t, all[n], s.must("GET", "/v1/conversations/"+id+"/items/"+one, ""))
	}

	s.must("POST", session+"/turns/"+turn.body["turn_id"].(string)+"/redact", `{}`)
	require.Equal(t, []string{"s", "q2", "let me see", "function_call", "function_call_output", "pending"},
		texts(s.list(id, 100)), "what is redacted is gone here")
	require.Equal(t, ids(all)[2:], ids(s.list(id, 100)))
	s.must("POST", session+"/reset", `{}`)
	require.Empty(t, s.list(id, 100))
	s.post(id, user("anew"))
	require.Equal(t, []string{"anew"}, texts(s.list(id, 100)))
}

// turns are the turns of a session, as the native API shows them.
func (s *stack) turns(id string) (out []map[string]any) {
	s.t.Helper()
	for _, one := range s.must("GET", "/v1/sessions/"+id+"/turns?status=all&limit=100", "")["turns"].([]any) {
		out = append(out, one.(map[string]any))
	}
	return out
}

// What is written here are turns of the native API: in lists, in the history and in prompts.
//
//conformance:o20 o32
func TestItemsAreNativeTurns(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(`{"role":"developer","content":"be brief"}`, user("q1"), user("q1b"))
	s.post(id, `{"type":"reasoning","summary":[]}`, function("c1"),
		function("c2"))
	s.post(id, `{"type":"function_call_output","call_id":"c1","output":"o1"}`)
	s.post(id, `{"type":"function_call_output","call_id":"c2","output":"o2"}`, assistant("a1"))
	s.post(id, user("q2"))
	turns := s.turns(id)
	require.Len(t, turns, 2)
	require.Equal(t, "q1\n\nq1b", turns[0]["question_neutral"])
	require.Equal(t, "a1", turns[0]["answer_neutral"])
	require.Equal(t, "finalized", turns[0]["status"])
	require.Len(t, turns[0]["question_messages"], 3)
	require.Len(t, turns[0]["answer_messages"], 6)
	require.Equal(t, "pending", turns[1]["status"])
	require.Equal(t, "q2", turns[1]["question_neutral"])
	history := s.must("GET", "/v1/sessions/"+id+"/history", "")["history"]
	require.Equal(t, []any{map[string]any{"question_neutral": "q1\n\nq1b", "answer_neutral": "a1"}}, history)

	prompt := s.must("POST", "/v1/sessions/"+id+"/context", `{"message":"now","include_pending":true}`)["messages"]
	raw, err := json.Marshal(prompt)
	require.NoError(t, err)
	require.JSONEq(t, `[{"role":"developer","content":"be brief"},{"role":"user","content":"q1"},
		{"role":"user","content":"q1b"},
		{"role":"assistant","content":null,"tool_calls":[
			{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},
			{"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"o1"},{"role":"tool","tool_call_id":"c2","content":"o2"},
		{"role":"assistant","content":"a1"},{"role":"user","content":"q2"},{"role":"user","content":"now"}]`,
		string(raw), "without what only items say, and with calls side by side")

	path := "/v1/sessions/" + id + "/turns"
	a := s.do("POST", path+"/"+turns[1]["turn_id"].(string)+"/finalize", `{"answer_neutral":"native"}`)
	require.Equal(t, http.StatusOK, a.status)
	s.post(id, assistant("and here"))
	last := s.list(id, 100)
	require.Equal(t, []string{"q2", "native", "and here"}, texts(last[len(last)-3:]))
	a = s.do("DELETE", "/v1/conversations/"+id, "")
	require.Equal(t, http.StatusOK, a.status)
	require.NotEmpty(t, a.header.Get("Turnledger-Receipt"))
	require.Equal(t, http.StatusGone, s.do("POST", path, `{"request_id":"r","question_neutral":"q"}`).status)
	require.Empty(t, s.must("GET", "/v1/sessions/"+id+"/history", "")["history"])
}

// A branch shows what it shares, by the same ids, and its own items behind it.
func TestItemsOfABranch(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q1"), assistant("a1"), user("q2"), assistant("a2"), user("q3"))
	fork := s.do("POST", "/v1/sessions/"+id+"/fork", `{"request_id":"f"}`)
	require.Equal(t, http.StatusCreated, fork.status, fork.raw)
	branch := fork.body["session_id"].(string)
	require.Equal(t, []string{"q1", "a1", "q2", "a2"}, texts(s.list(branch, 3)))
	require.Equal(t, ids(s.list(id, 100))[:4], ids(s.list(branch, 100)))
	s.post(branch, user("b1"), assistant("b2"))
	s.post(id, assistant("a3"))
	require.Equal(t, []string{"q1", "a1", "q2", "a2", "b1", "b2"}, texts(s.list(branch, 4)))
	newest := s.must("GET", "/v1/conversations/"+branch+"/items?limit=3", "")
	require.Equal(t, []string{"b2", "b1", "a2"}, texts(newest["data"].([]any)))
	require.Equal(t, true, newest["has_more"])
	one := ids(s.list(branch, 100))[1]
	require.Equal(t, one, s.must("GET", "/v1/conversations/"+branch+"/items/"+one, "")["id"])
	s.must("POST", "/v1/sessions/"+branch+"/reset", `{}`)
	require.Empty(t, s.list(branch, 100))
	require.Len(t, s.list(id, 100), 6)
}

// An id that no conversation can have is a conversation that there is not, whatever call names it.
func TestAnImpossibleIDIsNoConversation(t *testing.T) {
	t.Parallel()
	s := start(t)
	const one = "/v1/conversations/a%01"
	for _, call := range [][2]string{
		{"GET", one}, {"POST", one}, {"DELETE", one}, {"GET", one + "/items"}, {"POST", one + "/items"},
		{"GET", one + "/items/msg_1"}, {"DELETE", one + "/items/msg_1"},
	} {
		got := s.do(call[0], call[1], `{"items":[],"metadata":{}}`)
		require.Equal(t, http.StatusNotFound, got.status, "%v %s", call, got.raw)
		require.NotContains(t, got.raw, "session_id", call)
	}
}
