package openai_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// ring knows callers by their tokens.
type ring map[string]access.Caller

func (r ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	if c, known := r[token]; known {
		return c, nil
	}
	return access.Caller{}, access.ErrUnauthenticated
}

const (
	writes   = access.TurnsWrite
	reads    = access.ContextRead
	follows  = access.EventsRead
	redacts  = access.TurnsRedact
	operates = access.Admin
	all      = writes | reads | follows | redacts | operates
)

// needs is what every call needs; of anyOf it needs one. A call that is not in it fails the test, so that its scope is
// somebody's decision.
var needs = map[string]access.Scopes{
	"POST /v1/conversations":                                     writes,
	"GET /v1/conversations/{conversation_id}":                    reads,
	"POST /v1/conversations/{conversation_id}":                   writes,
	"DELETE /v1/conversations/{conversation_id}":                 redacts,
	"POST /v1/conversations/{conversation_id}/items":             writes,
	"GET /v1/conversations/{conversation_id}/items":              reads,
	"GET /v1/conversations/{conversation_id}/items/{item_id}":    reads,
	"DELETE /v1/conversations/{conversation_id}/items/{item_id}": redacts,
	"POST /v1/chat/completions":                                  writes | reads,
	"POST /v1/responses":                                         writes | reads,
	"GET /v1/responses/{response_id}":                            reads,
	"DELETE /v1/responses/{response_id}":                         redacts,
	"POST /v1/responses/{response_id}/cancel":                    writes,
	"GET /v1/responses/{response_id}/input_items":                writes | reads,
	"POST /v1/responses/input_tokens":                            writes | reads,
	"POST /v1/responses/compact":                                 writes | reads,
}

var anyOf = map[string]access.Scopes{
	"GET /v1/conversations": reads | follows, "GET /v1/models": all, "GET /v1/models/{model}": all,
}

// guarded has callers of every set of scopes, and two that are bound to an identity.
func guarded(t testing.TB) *stack {
	callers := ring{
		"ada": {Name: "ada", Scopes: all, IdentityID: "ada"}, "bob": {Name: "bob", Scopes: all, IdentityID: "bob"},
	}
	for set := range all + 1 {
		callers["key-"+strings.Join(set.Names(), "+")] = access.Caller{Name: "x", Scopes: set}
	}
	callers["all"] = access.Caller{Name: "all", Scopes: all}
	return start(t, answeredBy(answer.Echo{}), func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
}

func (s *stack) as(token, method, path, body string) reply {
	s.t.Helper()
	return s.do(method, path, body, "Authorization", "Bearer "+token)
}

// routesOf returns the calls of the surface, by pattern.
func routesOf(s *stack) map[string]wire.Route {
	api := wire.New(s.wire)
	openai.Mount(api, s.cfg)
	out := map[string]wire.Route{}
	for _, r := range api.Routes() {
		if !r.Public {
			out[r.Method+" "+r.Path] = r
		}
	}
	return out
}

// Each call, with each set of scopes: it is refused exactly where a scope is missing.
//
//conformance:o23 o47
func TestEachCallNeedsItsScopes(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.wire.Registry = nil
	require.Len(t, routesOf(s), len(needs)+len(anyOf), "no call is left out")
	for pattern, route := range routesOf(s) {
		want, known := needs[pattern]
		if !known {
			require.Contains(t, anyOf, pattern, "say in this test what it needs")
		}
		require.Equal(t, want, route.Needs, pattern)
		require.Equal(t, anyOf[pattern], route.Any, pattern)
		require.NotNil(t, route.Admit, pattern)
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{conversation_id}", "none", "{item_id}", "msg_1", "{model}", "echo",
			"{response_id}", "resp_1").Replace(path)
		for set := range all + 1 {
			a := s.as("key-"+strings.Join(set.Names(), "+"), method, path, `{}`)
			refused := set&want != want || anyOf[pattern] != 0 && set&anyOf[pattern] == 0
			if pattern == "GET /v1/conversations" {
				refused = set&follows == 0 // across identities
			}
			require.Equal(t, refused, a.status == http.StatusForbidden, "%s with %v: %s", pattern, set.Names(), a.raw)
			if refused {
				e := a.body["error"].(map[string]any)
				require.Equal(t, "invalid_request_error", e["type"])
				require.Equal(t, "insufficient_permissions", e["code"])
			}
		}
		for _, header := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic x"}} {
			a := s.do(method, path, `{}`, header...)
			require.Equal(t, http.StatusUnauthorized, a.status, pattern)
			e := a.body["error"].(map[string]any)
			require.Equal(t, []any{"invalid_request_error", "invalid_api_key"}, []any{e["type"], e["code"]})
			require.Equal(t, "Bearer", a.header.Get("Www-Authenticate"))
		}
	}
}

// A bound key reaches its own conversations only, by every kind of id and on every route; others seem not to be there.
//
//conformance:o18 o47
func TestBoundKeysReachTheirOwn(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	mine := s.as("ada", "POST", "/v1/conversations", `{"items":[`+user("of ada")+`]}`).body["id"].(string)
	nobodys := s.as("all", "POST", "/v1/conversations", `{"items":[`+user("of nobody")+`]}`).body["id"].(string)
	path := "/v1/conversations/" + mine
	item := ids(s.as("ada", "GET", path+"/items", "").body["data"].([]any))[0]
	free := ids(s.as("all", "GET", "/v1/conversations/"+nobodys+"/items", "").body["data"].([]any))[0]
	require.Equal(t, "ada", s.must("GET", "/v1/sessions/"+mine, "", "Authorization", "Bearer all")["identity_id"])

	for pattern := range routesOf(s.without()) {
		method, path, _ := strings.Cut(pattern, " ")
		if !strings.Contains(path, "{conversation_id}") {
			continue
		}
		for _, id := range []string{mine, nobodys, "none"} {
			at := strings.NewReplacer("{conversation_id}", id, "{item_id}", item).Replace(path)
			a := s.as("bob", method, at, `{"metadata":{"a":"b"},"items":[`+user("of bob")+`]}`)
			require.Equal(t, http.StatusNotFound, a.status, "%s %s", method, at)
			require.JSONEq(t, s.as("bob", method, strings.Replace(at, id, "nobody", 1), `{}`).raw, a.raw)
		}
	}
	own := s.as("bob", "POST", "/v1/conversations", `{}`).body["id"].(string)
	for _, foreign := range []string{item, free} {
		a := s.as("bob", "POST", "/v1/conversations/"+own+"/items",
			`{"items":[{"type":"item_reference","id":"`+foreign+`"}]}`)
		require.Equal(t, http.StatusNotFound, a.status, a.raw)
		a = s.as("bob", "POST", "/v1/conversations", `{"items":[{"type":"item_reference","id":"`+foreign+`"}]}`)
		require.Equal(t, http.StatusNotFound, a.status, a.raw)
	}
	a := s.as("ada", "POST", "/v1/conversations", `{"items":[{"type":"item_reference","id":"`+item+`"}]}`)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Len(t, s.as("ada", "GET", path+"/items", "").body["data"], 1, "bob has added nothing")
	require.Equal(t, map[string]any{}, s.as("ada", "GET", path, "").body["metadata"])
}

// without returns the stack's settings, for another API beside its own.
func (s *stack) without() *stack {
	own := *s
	own.wire.Registry = nil
	return &own
}

// lister lists sessions as the tables do: the newest activity first, then by id.
type lister struct {
	all   []projections.ListedSession
	asked []services.SessionsAsk
}

func (l *lister) Sessions(_ context.Context, ask services.SessionsAsk) (page services.SessionPage, err error) {
	l.asked = append(l.asked, ask)
	behind := ask.Cursor == ""
	for _, one := range l.all {
		switch {
		case !behind:
			behind = one.SessionID == ask.Cursor
		case ask.IdentityID != "" && one.Identity != ask.IdentityID:
		case !ask.Until.IsZero() && !one.LastActive.Before(ask.Until):
		case len(page.Sessions) == ask.Limit:
			page.NextCursor = page.Sessions[ask.Limit-1].SessionID
			return page, nil
		default:
			page.Sessions = append(page.Sessions, one)
		}
	}
	return page, nil
}

// The list of conversations is that of the caller, in pages, also where many were active at the same time.
//
//conformance:o6
func TestConversationsAreListed(t *testing.T) {
	t.Parallel()
	l := &lister{}
	callers := ring{"ada": {Name: "ada", Scopes: reads | writes, IdentityID: "ada"}, "all": {Name: "all", Scopes: all}}
	s := start(t, func(s *stack) { s.wire.Open, s.wire.Auth, s.cfg.Lists = false, callers, l })
	var want []string
	for range 7 {
		want = append(want, s.as("ada", "POST", "/v1/conversations", `{}`).body["id"].(string))
	}
	at := time.Now().Add(time.Hour)
	for _, id := range want {
		st, err := s.services.Reader.Read(t.Context(), services.Ask{SessionID: id})
		require.NoError(t, err)
		at = st.State.CreatedAt
		l.all = append(l.all, projections.ListedSession{SessionID: id, Head: session.Head{
			Identity: "ada", CreatedAt: at, LastActive: st.State.LastActive,
		}})
	}
	for i := range l.all { // all of them at the same time
		l.all[i].LastActive = at
	}
	var got []string
	after := ""
	for more := true; more; {
		a := s.as("ada", "GET", "/v1/conversations?limit=3"+after, "")
		require.Equal(t, http.StatusOK, a.status, a.raw)
		got = append(got, ids(a.body["data"].([]any))...)
		more = a.body["has_more"].(bool)
		after = "&after=" + a.body["last_id"].(string)
		for i := range l.all {
			l.all[i].LastActive = at.Add(-time.Hour)
		}
	}
	require.Equal(t, want, got)
	require.Equal(t, "ada", l.asked[0].IdentityID)
	require.Equal(t, http.StatusNotFound, s.as("ada", "GET", "/v1/conversations?after=none", "").status)
	require.Equal(t, http.StatusBadRequest, s.as("ada", "GET", "/v1/conversations?order=asc", "").status)
}

// Web pages of the origins that were named may call the surface, and nothing that operates; others may not.
//
//conformance:o74
func TestWebPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.org"
	s := start(t, func(s *stack) { s.wire.Origins = []string{app} })
	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization",
		"Sec-Fetch-Site", "cross-site", "Origin"}
	a := s.do("OPTIONS", "/v1/conversations", "", append(preflight, app)...)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, app, a.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "authorization", a.header.Get("Access-Control-Allow-Headers"))
	require.Equal(t, "Origin", a.header.Get("Vary"))
	a = s.do("POST", "/v1/conversations", `{}`, "Origin", app, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Equal(t, app, a.header.Get("Access-Control-Allow-Origin"))
	a = s.do("POST", "/v1/conversations", `{`, "Origin", app, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, app, a.header.Get("Access-Control-Allow-Origin"), "a page may read what is wrong")

	for _, other := range []string{"https://evil.example.org", app + ".evil.org", "null"} {
		a = s.do("OPTIONS", "/v1/conversations", "", append(preflight, other)...)
		require.GreaterOrEqual(t, a.status, 400, other)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
		a = s.do("POST", "/v1/conversations", `{}`, "Origin", other, "Sec-Fetch-Site", "cross-site")
		require.Equal(t, http.StatusForbidden, a.status, other)
	}
	a = s.do("GET", "/v1/projections", "", "Origin", app, "Sec-Fetch-Site", "cross-site")
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}
