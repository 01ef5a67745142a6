package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
)

func reference(id string) string { return `{"type":"item_reference","id":"` + id + `"}` }

// A request for a response refers to items of its own history by any id that they have, also one that a client gave
// them, and to items of the caller's other conversations by an id of ours.
//
//conformance:o18
func TestAResponseRefersToItems(t *testing.T) {
	t.Parallel()
	callers := ring{
		"ada": {Name: "ada", IdentityID: "ada", Scopes: all}, "bob": {Name: "bob", IdentityID: "bob", Scopes: all},
		"all": {Name: "all", Scopes: all},
	}
	s := start(t, answeredBy(answer.Echo{}), func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
	conversation := func(as, text string) string {
		return s.as(as, "POST", "/v1/conversations", `{"items":[{"role":"user","id":"msg_theirs","content":"`+text+
			`"},{"role":"assistant","content":"`+text+` answered"}]}`).body["id"].(string)
	}
	mine, other, foreign := conversation("ada", "mine"), conversation("ada", "other"), conversation("bob", "foreign")
	idIn := func(as, id string) string { // of the assistant's message, which has an id of ours
		return ids(s.as(as, "GET", "/v1/conversations/"+id+"/items?limit=1", "").body["data"].([]any))[0]
	}
	ask := func(body string) reply { return s.as("ada", "POST", "/v1/responses", body) }
	in := `"conversation":"` + mine + `"`
	first := ask(`{"input":[{"role":"user","content":"begun","id":"msg_asked"}],` + in + `}`)
	require.Equal(t, http.StatusOK, first.status, first.raw)
	behind := `"previous_response_id":"` + first.body["id"].(string) + `"`
	for name, c := range map[string]struct{ where, id, says string }{
		"of the conversation":              {in, "msg_theirs", "mine"},
		"of the history":                   {behind, "msg_theirs", "mine"},
		"not stored":                       {in + `,"store":false`, "msg_theirs", "mine"},
		"not stored, of the history":       {behind + `,"store":false`, "msg_theirs", "mine"},
		"streamed":                         {in + `,"stream":true`, "msg_theirs", "mine"},
		"of ours":                          {in, idIn("ada", other), "other answered"},
		"of ours, without a history":       {`"store":true`, idIn("ada", other), "other answered"},
		"of ours, of another conversation": {behind, idIn("ada", other), "other answered"},
	} {
		a := ask(`{"input":[` + reference(c.id) + `],` + c.where + `}`)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.raw)
		require.Contains(t, a.raw, "You said: "+c.says+" (", name)
	}
	for _, form := range []string{`{"id":"msg_theirs"}`, `{"id":"msg_theirs","type":null}`} {
		a := ask(`{"input":[` + form + `],` + in + `}`)
		require.Equal(t, http.StatusOK, a.status, a.raw)
		require.Contains(t, a.raw, "You said: mine (", "the type may be left out")
	}
	for name, c := range map[string]struct{ where, id string }{
		"nobody's":                     {in, "msg_none"},
		"the client's, elsewhere":      {`"store":true`, "msg_theirs"},
		"a foreign one":                {in, idIn("bob", foreign)},
		"of a foreign conversation":    {`"conversation":"` + foreign + `"`, "msg_theirs"},
		"of no conversation":           {`"conversation":"conv_none"`, "msg_theirs"},
		"before what is wrong with it": {`"temperature":7`, "msg_none"},
	} {
		before := s.head()
		a := ask(`{"input":[` + reference(c.id) + `],` + c.where + `}`)
		require.Equal(t, http.StatusNotFound, a.status, "%s: %s", name, a.raw)
		require.NotContains(t, a.raw, "path", name)
		require.Equal(t, before, s.head(), name)
	}
	for _, as := range []string{"ada", "all"} {
		for _, id := range []string{"msg_theirs", "msg_none"} {
			where := map[string]string{"ada": foreign, "all": "conv_none"}[as]
			a := s.as(as, "POST", "/v1/responses", `{"input":[`+reference(id)+`],"conversation":"`+where+`"}`)
			require.Equal(t, http.StatusNotFound, a.status, a.raw)
			require.Contains(t, a.raw, "no conversation", "whether it has the item is not told")
			require.NotContains(t, a.raw, "path")
		}
	}
	a := ask(`{"input":[` + reference("msg_theirs") + `],"previous_response_id":"resp_none"}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	require.Equal(t, "previous_response_not_found", a.body["error"].(map[string]any)["code"])
}

// A request refers to items of one conversation and of at most 20 others, however many of theirs: each may be read as a
// whole.
func TestTheConversationsThatAResponseRefersToAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	var references []string
	for range 22 {
		for _, id := range ids(s.post(s.begin(), user("one"), user("two"))) {
			references = append(references, reference(id))
		}
	}
	ask := func(references []string) reply {
		return s.do("POST", "/v1/responses", `{"input":[`+strings.Join(references, ",")+`]}`)
	}
	a := ask(references[:42])
	require.Equal(t, http.StatusOK, a.status, a.raw)
	before := s.head()
	a = ask(references)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	require.Contains(t, a.raw, "more than 20 other conversations")
	require.Equal(t, before, s.head())
}
