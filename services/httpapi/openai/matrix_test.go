package openai_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// holdings are ids of everything that somebody has, by their kinds.
type holdings map[string]string

// hold makes one of everything, as a caller.
func (s *stack) hold(as string) holdings {
	s.t.Helper()
	h := holdings{}
	call := func(method, path, body string) map[string]any {
		a := s.as(as, method, path, body)
		require.Less(s.t, a.status, 300, a.raw)
		return a.body
	}
	h["conversation"] = call("POST", "/v1/conversations", `{"items":[`+user("q")+`,
		{"type":"reasoning","summary":[]},`+function("c")+`,
		{"type":"function_call_output","call_id":"c","output":"o"},`+assistant("a")+`,
		{"role":"user","content":"mine","id":"msg_of_`+as+`"},`+assistant("b")+`]}`)["id"].(string)
	listed := call("GET", "/v1/conversations/"+h["conversation"]+"/items?order=asc", "")["data"].([]any)
	for n, id := range ids(listed) {
		h[fmt.Sprint("item ", n, " ", listed[n].(map[string]any)["type"])] = id
	}
	h["response of a conversation"] = call("POST", "/v1/responses",
		`{"input":"q","conversation":"`+h["conversation"]+`"}`)["id"].(string)
	h["response"] = call("POST", "/v1/responses", `{"input":"q"}`)["id"].(string)
	h["native"] = "native-" + as
	turn := `{"request_id":"r","question_neutral":"q","answer_neutral":"a"`
	if as != "all" { // a bound key begins no native session
		turn += `,"identity_id":"` + as + `"`
	}
	recorded := s.as("all", "POST", "/v1/sessions/"+h["native"]+"/turns", turn+"}")
	require.Equal(s.t, http.StatusCreated, recorded.status, recorded.raw)
	h["turn"] = recorded.body["turn_id"].(string)
	listed = call("GET", "/v1/conversations/"+h["native"]+"/items?order=asc", "")["data"].([]any)
	h["item of a turn"] = ids(listed)[0]
	return h
}

// place is where a call has an id.
type place struct {
	pattern, name string
	// put returns the path and the body of the call with an id.
	put func(id string) (path, body string)
}

// inBodies are the places of ids beside those in paths. OWN is a conversation of the caller's, and ID the id.
var inBodies = []struct{ pattern, path, body string }{
	{"POST /v1/conversations", "", `{"items":[{"type":"item_reference","id":"ID"}]}`},
	{"GET /v1/conversations", "?after=ID", ""},
	{"POST /v1/conversations/{conversation_id}/items", "", `{"items":[{"type":"item_reference","id":"ID"}]}`},
	{"GET /v1/conversations/{conversation_id}/items", "?after=ID", ""},
	{"GET /v1/responses/{response_id}/input_items", "?after=ID", ""},
	{"POST /v1/responses", "", `{"input":"q","conversation":"ID"}`},
	{"POST /v1/responses", "", `{"input":"q","conversation":{"id":"ID"},"stream":true}`},
	{"POST /v1/responses", "", `{"input":"q","conversation":"ID","store":false}`},
	{"POST /v1/responses", "", `{"input":"q","previous_response_id":"ID"}`},
	{"POST /v1/responses", "", `{"input":"q","previous_response_id":"ID","store":false,"stream":true}`},
	{"POST /v1/responses", "", `{"input":[{"type":"item_reference","id":"ID"}]}`},
	{"POST /v1/responses", "", `{"input":[{"type":"item_reference","id":"ID"}],"conversation":"OWN","store":false}`},
	{"POST /v1/responses/input_tokens", "", `{"input":"q","conversation":"ID"}`},
	{"POST /v1/responses/input_tokens", "", `{"input":"q","previous_response_id":"ID"}`},
	{"POST /v1/responses/input_tokens", "", `{"input":[{"type":"item_reference","id":"ID"}]}`},
	{"POST /v1/sessions/{session_id}/fork", "", `{"request_id":"f1","turn_id":"ID"}`},
	{"POST /v1/sessions/{session_id}/fork", "", `{"request_id":"f2","before_turn_id":"ID"}`},
	{"POST /v1/sessions/{session_id}/summaries", "", `{"request_id":"m","through_turn_id":"ID","summary_neutral":"s"}`},
}

// bodies are those of calls whose path has the id.
var bodies = map[string]string{
	"POST /v1/conversations/{conversation_id}":                `{"metadata":{"k":"v"}}`,
	"POST /v1/conversations/{conversation_id}/items":          `{"items":[` + user("q") + `]}`,
	"POST /v1/sessions/{session_id}/turns":                    `{"request_id":"r9","question_neutral":"q"}`,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": `{"answer_neutral":"a"}`,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/correct":  `{"request_id":"c9","answer_neutral":"a"}`,
	"POST /v1/sessions/{session_id}/context":                  `{"message":"m"}`,
	"POST /v1/sessions/{session_id}/fork":                     `{"request_id":"f9"}`,
	"PATCH /v1/sessions/{session_id}":                         `{"title":"t"}`,
	"PUT /v1/sessions/{session_id}/identity":                  `{"identity_id":"ada"}`,
}

// placesOf returns every place of an id in the calls of the routes. mine is what stands in the other places.
func placesOf(routes []wire.Route, mine holdings) (out []place) {
	own := map[string]string{
		"{conversation_id}": mine["conversation"], "{session_id}": mine["native"], "{turn_id}": mine["turn"],
		"{response_id}": mine["response of a conversation"], "{item_id}": mine["item 0 message"],
	}
	fill := func(path string) string {
		for name, id := range own {
			path = strings.ReplaceAll(path, name, id)
		}
		return path
	}
	for _, r := range routes {
		pattern := r.Method + " " + r.Path
		for name := range own {
			if r.Public || r.Role != "" || !strings.Contains(r.Path, name) {
				continue
			}
			out = append(out, place{pattern, name, func(id string) (string, string) {
				body := bodies[pattern]
				if body == "" && r.Method != http.MethodGet {
					body = `{}`
				}
				return fill(strings.ReplaceAll(r.Path, name, id)), body
			}})
		}
		for _, b := range inBodies {
			if b.pattern == pattern {
				out = append(out, place{pattern, b.path + b.body, func(id string) (string, string) {
					with := strings.NewReplacer("ID", id, "OWN", mine["conversation"])
					return fill(r.Path) + with.Replace(b.path), with.Replace(b.body)
				}})
			}
		}
	}
	return out
}

// rank is the order of calls that take something of the caller's own away, which come behind all others.
func rank(p place) int {
	return 1 + slices.IndexFunc([]string{
		"DELETE " + oneItem, "DELETE /v1/responses/{response_id}",
		"POST /v1/sessions/{session_id}/turns/{turn_id}/correct",
		"POST /v1/sessions/{session_id}/turns/{turn_id}/redact", "POST /v1/sessions/{session_id}/reset",
		"DELETE /v1/conversations/{conversation_id}", "DELETE /v1/sessions/{session_id}",
	}, func(pattern string) bool { return pattern == p.pattern })
}

const oneItem = "/v1/conversations/{conversation_id}/items/{item_id}"

// TestTheMatrixOfIDs is made of the routes of both surfaces. In every place of every call, a caller that is bound to an
// identity sends each kind of id: of its own, of another identity, of nobody, and of nothing. What is not its own is
// answered as what there is not, word by word, and nothing is written.
//
//conformance:o47
func TestTheMatrixOfIDs(t *testing.T) {
	t.Parallel()
	callers := ring{"": {Name: "all", Scopes: all}, "all": {Name: "all", Scopes: all}}
	for _, name := range []string{"ada", "bob"} {
		callers[name] = access.Caller{Name: name, Scopes: all &^ access.Admin, IdentityID: name}
	}
	sessions := &lister{}
	s := start(t, answeredBy(answer.Echo{}), func(s *stack) {
		s.wire.Open, s.wire.Auth, s.cfg.Lists = false, callers, sessions
	})
	own, foreign, nobodys := s.hold("ada"), s.hold("bob"), s.hold("all")
	for _, one := range []string{own["conversation"], foreign["conversation"], nobodys["conversation"]} {
		sessions.all = append(sessions.all, projections.ListedSession{SessionID: one, Head: session.Head{
			Identity: map[string]string{own["conversation"]: "ada", foreign["conversation"]: "bob"}[one],
		}})
	}
	api := wire.New(s.without().wire)
	v1.Mount(api, s.native)
	openai.Mount(api, s.cfg)
	places := placesOf(api.Routes(), own)
	require.GreaterOrEqual(t, len(places), 49)
	slices.SortStableFunc(places, func(a, b place) int { return rank(a) - rank(b) })

	refused := map[string]string{} // the answers, by place and kind
	for _, p := range places {
		method, _, _ := strings.Cut(p.pattern, " ")
		for kind := range own {
			for _, id := range []string{nothing(own[kind]), foreign[kind], nobodys[kind]} {
				if slices.Contains(beginning, p.pattern) && natstest.Fold(t, s.log, id, rules).Applied == 0 {
					continue
				}
				head := s.head()
				path, body := p.put(id)
				a := s.as("ada", method, path, body)
				what := fmt.Sprintf("%s, %s: %s %s %s: %s", p.pattern, p.name, kind, path, body, a.raw)
				require.GreaterOrEqual(t, a.status, http.StatusBadRequest, what)
				require.Less(t, a.status, http.StatusInternalServerError, what)
				require.Equal(t, head, s.head(), "%s has written", what)
				said := fmt.Sprint(a.status, strings.ReplaceAll(a.raw, id, "ID"))
				if before, has := refused[p.pattern+p.name+kind]; has {
					require.Equal(t, before, said, "%s tells what there is", what)
				}
				refused[p.pattern+p.name+kind] = said
			}
		}
	}
	for _, p := range places {
		method, _, _ := strings.Cut(p.pattern, " ")
		differs := false
		for _, kind := range slices.Sorted(maps.Keys(own)) {
			path, body := p.put(own[kind])
			a := s.as("ada", method, path, body)
			said := fmt.Sprint(a.status, strings.ReplaceAll(a.raw, own[kind], "ID"))
			differs = differs || said != refused[p.pattern+p.name+kind]
		}
		require.True(t, differs, "%s, %s: its owner hears what strangers hear", p.pattern, p.name)
	}
}

// beginning are the calls by which a bound caller begins the session that it names, if there is none.
var beginning = []string{
	"POST /v1/sessions/{session_id}/turns", "POST /v1/turns", "POST /v1/threads/{thread_id}/messages",
	"POST /v1/threads/{thread_id}/messages/stream", "POST /v1/chat", "POST /v1/chat/stream",
}

// nothing returns an id that looks like another one, and names nothing.
func nothing(id string) string {
	if rest, named := strings.CutSuffix(id, "ada"); named && strings.ContainsAny(id, "-f") {
		return rest + "eve"
	}
	other := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '0' + (r-'0'+1)%10
		}
		return r
	}, id)
	if strings.HasPrefix(id, "resp_") {
		other = other[:len(other)-2] + id[len(id)-2:]
	}
	return other
}

// officialCalls are those of OpenAI's document for conversations and responses.
var officialCalls = []string{
	"POST /v1/conversations", "GET /v1/conversations/{conversation_id}", "POST /v1/conversations/{conversation_id}",
	"DELETE /v1/conversations/{conversation_id}", "POST /v1/conversations/{conversation_id}/items",
	"GET /v1/conversations/{conversation_id}/items", "GET " + oneItem, "DELETE " + oneItem,
	"POST /v1/responses", "GET /v1/responses/{response_id}", "DELETE /v1/responses/{response_id}",
	"POST /v1/responses/{response_id}/cancel", "GET /v1/responses/{response_id}/input_items",
	"POST /v1/responses/input_tokens", "POST /v1/responses/compact",
}

// Each call of the official document's conversations and responses is a route, so that the matrix has it.
//
//conformance:o1
func TestTheOfficialCallsAreRoutes(t *testing.T) {
	t.Parallel()
	file := os.Getenv(openaitest.Variable)
	calls := officialCalls
	if file != "" {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var document struct {
			Paths map[string]map[string]any `json:"paths"`
		}
		require.NoError(t, json.Unmarshal(raw, &document))
		calls = nil
		for path, item := range document.Paths {
			for method := range item {
				if !strings.Contains(path, "?") && !strings.HasPrefix(path, "/models") {
					calls = append(calls, strings.ToUpper(method)+" /v1"+path)
				}
			}
		}
		require.ElementsMatch(t, officialCalls, calls, "the document has other calls than when this was written")
	}
	have := routesOf(start(t, answeredBy(answer.Echo{})).without())
	for _, call := range calls {
		require.Contains(t, have, call)
		require.Contains(t, needs, call)
	}
}
