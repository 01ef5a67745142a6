package v1_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
)

const (
	writes   = access.TurnsWrite
	reads    = access.ContextRead
	follows  = access.EventsRead
	redacts  = access.TurnsRedact
	operates = access.Admin

	scopes = writes | reads | follows | redacts | operates
)

// needs is what every call needs. A call that is not in it fails the test, so that its
// scope is somebody's decision.
var needs = map[string]access.Scopes{
	"POST /v1/sessions/{session_id}/turns":                    writes,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": writes,
	"POST /v1/turns":                         writes,
	"PUT /v1/sessions/{session_id}/identity": writes,
	"PATCH /v1/sessions/{session_id}":        writes,
	"GET /v1/sessions":                       reads | follows,    // one of them
	"POST /v1/sessions/query":                reads | follows,    // one of them
	"POST /v1/search":                        reads | follows,    // one of them
	"POST /v1/similar":                       reads | follows,    // one of them
	"GET /v1/stats":                          follows | operates, // one of them
	"POST /v1/sessions/{session_id}/turns/{turn_id}/redact":  redacts,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/correct": writes,
	"POST /v1/sessions/{session_id}/reset":                   writes,
	"POST /v1/sessions/{session_id}/fork":                    writes | reads,
	"POST /v1/sessions/{session_id}/summaries":               writes,
	"GET /v1/sessions/{session_id}/summaries":                reads,
	"GET /v1/sessions/{session_id}":                          reads,
	"GET /v1/sessions/{session_id}/turns":                    reads,
	"GET /v1/sessions/{session_id}/history":                  reads,
	"POST /v1/sessions/{session_id}/context":                 reads,
	"GET /v1/identities/{identity_id}/turns":                 reads,
	"DELETE /v1/sessions/{session_id}":                       redacts,
	"DELETE /v1/identities/{identity_id}":                    redacts,
	"GET /v1/receipts/{id}":                                  redacts,
	"GET /v1/receipts":                                       redacts,
	"GET /v1/keys":                                           operates,
	"POST /v1/retention":                                     operates,
	"GET /v1/events":                                         follows,
	"POST /v1/threads/{thread_id}/messages":                  writes | reads,
	"POST /v1/threads/{thread_id}/messages/stream":           writes | reads,
	"POST /v1/chat":                                          writes | reads,
	"POST /v1/chat/stream":                                   writes | reads,
	"GET /v1/projections":                                    operates,
	"POST /v1/projections/{name}/rebuild":                    operates,
	"DELETE /v1/projections/{name}/rebuild":                  operates,
	"POST /v1/projections/{name}/verify":                     operates,
	"GET /v1/streams":                                        operates,
	"POST /v1/streams":                                       operates,
	"GET /v1/partitions/{partition}/snapshot":                operates | follows,
	"POST /v1/restore":                                       operates | follows | writes,
	"GET /v1/deadletters":                                    operates,
	"GET /v1/deadletters/{projection}/{position}":            operates,
	"POST /v1/deadletters/{projection}/{position}/retry":     operates,
	"POST /v1/deadletters/{projection}/{position}/drop":      operates,
	"GET /healthz":                                           anybody,
	"GET /readyz":                                            anybody,
	"GET /metrics":                                           anybody,
	"GET /openapi.json":                                      anybody,
	"GET /docs":                                              anybody,
}

// guarded is an API that has every call, with the callers of a ring. The token all may
// do everything; ada's too, in her sessions (admin included, which no real key has).
func guarded(t testing.TB, callers ring, more ...setting) (*stack, *silentModel) {
	t.Helper()
	events := natstest.Log(t, 1)
	r := replay.New(events, owners.New(events, nil))
	natstest.Run(t, r.Run)
	model := &silentModel{}
	callers["all"] = access.Caller{Name: "all", Scopes: scopes}
	callers["ada"] = access.Caller{Name: "ada", Scopes: scopes, IdentityID: "ada"}
	s := startOn(t, events, append([]setting{func(c *config, _ *history.Config, _ *read.Config) {
		c.RefusalTime = time.Millisecond
		c.Open, c.Auth, c.Events, c.Chat, c.Keeper = false, callers, r, model, nothing{}
		c.Erasures, c.Receipts, c.Retention = nothing{}, nothing{}, nothing{}
		c.Streams, c.Backups = operate.On(events), nothing{}
		c.Keys = func() ([]access.Key, error) { return nil, nil }
		c.LinkReader = read.New(events, read.Config{Rules: rules})
	}}, more...)...)
	return s, model
}

// as calls with a token.
func (s *stack) as(token, method, path string, body any) answer {
	s.t.Helper()
	return s.do(method, path, body, "Authorization", "Bearer "+token)
}

// fill puts values into a pattern.
func fill(pattern string, session string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{session_id}", session, "{thread_id}", session, "{turn_id}",
		events.TurnID(session, "r").String(),
		"{identity_id}", "ada", "{name}", "recent", "{projection}", "recent", "{position}", "0:1", "{partition}",
		"0").Replace(path)
}

// bodyFor is an empty object where a call takes a body.
func bodyFor(pattern string) string {
	_, last, _ := strings.Cut(pattern, "}/")
	bodiless := pattern == "POST /v1/retention" || pattern == "POST /v1/streams" || pattern == "POST /v1/restore" ||
		last == "rebuild" || last == "verify" || strings.HasSuffix(last, "/retry")
	if bodiless || strings.HasPrefix(pattern, "GET ") {
		return ""
	}
	return "{}"
}

// TestEachCallNeedsItsScope goes through the routes that there are, and each set of
// scopes.
func TestEachCallNeedsItsScope(t *testing.T) {
	t.Parallel()
	callers := ring{}
	for set := range scopes + 1 {
		callers["key-"+strings.Join(set.Names(), "+")] = access.Caller{Name: "x", Scopes: set}
	}
	s, _ := guarded(t, callers)
	require.ElementsMatch(t, []string{"Counts", "Identities", "Limiter", "Lists", "Lookup", "Messages", "Projections",
		"Search", "Similar"},
		unset(s.cfg.v1Config, s.cfg.Ports, s.cfg.Rules),
		"give guarded what else there is, so that its calls are here")
	require.Equal(t, []string{"Traces"}, unset(s.cfg.wireConfig))
	routes := routes(s.api)
	for pattern := range needs {
		require.Contains(t, routes, pattern)
	}
	for pattern, route := range routes {
		want, ok := needs[pattern]
		require.True(t, ok, "%s: say in this test what it needs", pattern)
		require.Equal(t, want, route.needs, pattern)
		if pattern == "GET /v1/sessions" || pattern == "POST /v1/sessions/query" || pattern == "POST /v1/search" ||
			pattern == "POST /v1/similar" {
			want = follows // without an identity; TestCallsAcrossSessionsNeedOneOfTwoScopes has the rest
		}
		method, path := fill(pattern, "s")
		if want == anybody {
			require.Equal(t, http.StatusOK, s.do(method, path, nil).status, pattern)
			require.Equal(t, http.StatusOK, s.as("wrong", method, path, nil).status, pattern)
			continue
		}
		for token, caller := range callers {
			a := s.as(token, method, path, bodyFor(pattern))
			switch {
			case caller.IdentityID != "", pattern == "GET /v1/stats" && caller.Scopes&want != 0: // one is enough
			case caller.Scopes&want == want:
				require.NotContains(t, []int{401, 403, 500}, a.status, "%s %s", token, pattern)
			default:
				requireProblem(t, a, http.StatusForbidden, "forbidden")
				for _, name := range (want &^ caller.Scopes).Names() {
					require.Contains(t, a.body["detail"], name)
				}
			}
		}
		for _, header := range [][]string{
			nil, {"Authorization", ""}, {"Authorization", "Bearer"}, {"Authorization", "Bearer "}, {"Authorization",
				"Bearer wrong"}, {"Authorization", "Bearer ended"},
			{"Authorization", "Basic all"}, {"Authorization", "all"}, {"Authorization",
				"Bearer all all"}, {"Authorization", "Bearer ALL"}, {"X-Api-Key", "all"}, {"Cookie",
				"Authorization=Bearer all"},
		} {
			a := s.do(method, path, "{}", header...)
			requireProblem(t, a, http.StatusUnauthorized, "unauthenticated")
			require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
		}
		if method == http.MethodGet {
			require.Equal(t, http.StatusUnauthorized, s.do(http.MethodHead, path, nil).status, pattern)
		}
	}
	require.Equal(t, http.StatusUnauthorized, s.do("GET", "/v1/projections?access_token=all", nil).status)
	twice := httptest.NewRequest("GET", "/v1/projections", nil)
	twice.Header["Authorization"] = []string{"Bearer all", "Bearer wrong"}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, twice)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	s.ok(http.StatusOK, "GET", "/v1/projections", nil, "Authorization", "bearer  all")
	require.NotContains(t, s.logs.String(), "Bearer")
	require.Zero(t, s.head())
}

// A call that was declared without a scope is answered to nobody, also where nobody is
// asked for a key: the first test of it fails.
func TestACallWithoutAScopeIsAnsweredToNobody(t *testing.T) {
	t.Parallel()
	guarded, _ := guarded(t, ring{})
	for _, s := range []*stack{guarded, start(t)} {
		forgotten := v1.Form()
		forgotten.Routes = []wire.Route{{Method: http.MethodGet, Path: "/v1/forgotten",
			Handle: func(http.ResponseWriter, *http.Request) error {
				panic("it was answered")
			}}}
		s.api.Mount(forgotten)
		requireProblem(t, s.as("all", "GET", "/v1/forgotten", nil), http.StatusForbidden, "forbidden")
	}
}

// An API without an Authenticator that nobody declared open lets nobody in.
func TestWithoutAnAuthenticatorNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) { c.Open = false })
	requireProblem(t, s.as("all", "GET", "/v1/sessions/s", nil), http.StatusUnauthorized, "unauthenticated")
	s.ok(http.StatusOK, "GET", "/healthz", nil)
}

// TestABoundKeyReachesItsOwnSessionsOnly goes through the routes that there are: what is
// another's, anonymous or not there looks the same, and nothing is recorded.
//
//conformance:s27
func TestABoundKeyReachesItsOwnSessionsOnly(t *testing.T) {
	t.Parallel()
	s, model := guarded(t, ring{"stranger": {Name: "stranger", Scopes: scopes, IdentityID: "eve"}})
	turn := `{"request_id":"r","question_neutral":"q"}`
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob", "anonymous": ""} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+session+"/turns", turn).status)
		if identity != "" {
			require.Equal(t, http.StatusOK, s.as("all", "PUT", "/v1/sessions/"+session+"/identity",
				map[string]any{"identity_id": identity}).status)
		}
	}
	for parent, branch := range map[string]string{"own": "own-branch", "foreign": "foreign-branch"} {
		require.Equal(t, http.StatusOK, s.as("all", "POST", "/v1/sessions/"+parent+"/turns/"+
			events.TurnID(parent, "r").String()+"/finalize", `{"answer_neutral":"a"}`).status)
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+parent+"/fork",
			map[string]any{"request_id": "f", "session_id": branch}).status)
	}
	// A mark on the caller's own session makes another's branch no branch of it.
	s.append(&events.SessionBranched{SessionID: "own", ChildSessionID: "foreign-branch", RequestID: "stolen",
		FromSessionID: "own", Root: "own"})
	require.Equal(t, http.StatusOK, s.as("ada", "GET", "/v1/sessions/own-branch/turns", nil).status)
	head := s.head()
	for pattern, route := range routes(s.api) {
		if route.needs == anybody || route.bounds {
			continue
		}
		method, path := fill(pattern, "own")
		switch {
		case strings.Contains(pattern, "{session_id}"):
			var said []string
			for _, session := range []string{"foreign", "foreign-branch", "anonymous", "unknown", "..",
				strings.Repeat("i", 257)} {
				method, path := fill(pattern, session)
				a := s.as("ada", method, path, `{"message":"m","identity_id":"ada"}`)
				requireProblem(t, a, http.StatusNotFound, "session_not_found")
				said = append(said, string(a.raw))
			}
			for _, one := range said {
				require.Equal(t, said[0], one, pattern)
			}
			require.Equal(t, said[0], string(s.as("stranger", method, path, "{}").raw), pattern)
		case strings.Contains(pattern, "{identity_id}"):
			requireProblem(t, s.as("stranger", method, path, nil), http.StatusNotFound, "not_found")
			requireProblem(t, s.as("ada", method, path, nil), http.StatusServiceUnavailable, "audit_unavailable")
		default:
			requireProblem(t, s.as("ada", method, path, "{}"), http.StatusForbidden, "forbidden")
		}
	}
	require.Equal(t, head, s.head())

	for _, path := range []string{"/v1/threads/foreign/messages", "/v1/threads/anonymous/messages/stream",
		"/v1/threads/unknown/messages"} {
		requireProblem(t, s.as("ada", "POST", path, `{"content":"c"}`), http.StatusNotFound, "session_not_found")
	}
	for _, body := range []string{`{"content":"c","thread_id":"foreign"}`, `{"content":"c","thread_id":"unknown"}`} {
		requireProblem(t, s.as("ada", "POST", "/v1/chat", body), http.StatusNotFound, "session_not_found")
	}
	requireProblem(t, s.do("POST", "/v1/chat/stream", `{"content":"c"}`, "Authorization", "Bearer ada", "X-Thread-Id",
		"foreign"), http.StatusNotFound, "session_not_found")
	requireProblem(t, s.as("ada", "POST", "/v1/chat", `{"content":"c","user_id":"system"}`), http.StatusForbidden,
		"forbidden")
	require.Nil(t, model.last.Load(), "nothing of this was sent")
	for _, thread := range []string{"own", "new"} {
		requireProblem(t, s.as("ada", "POST", "/v1/threads/"+thread+"/messages", `{"content":"c"}`),
			http.StatusBadGateway, "model_failed")
		require.Equal(t, "ada", model.last.Load().UserID)
	}

	requireProblem(t, s.as("ada", "POST", "/v1/sessions/own/context", `{"message":"m","identity_id":"bob"}`),
		http.StatusForbidden, "forbidden")
	requireProblem(t, s.as("ada", "PUT", "/v1/sessions/own/identity", `{"identity_id":"bob"}`), http.StatusForbidden,
		"forbidden")
	require.Equal(t, head, s.head())
	require.Equal(t, http.StatusOK, s.as("ada", "GET", "/v1/sessions/own/turns", nil).status)
	require.Equal(t, http.StatusOK, s.as("ada", "POST", "/v1/sessions/own/context",
		`{"message":"m","identity_id":"ada"}`).status)
	require.Equal(t, http.StatusCreated, s.as("ada", "POST", "/v1/sessions/own/turns", `{"request_id":"r2","question_neutral":"q"}`).status)
	require.Equal(t, http.StatusOK, s.as("ada", "POST", "/v1/sessions/own/turns/"+events.TurnID("own", "r").String()+
		"/redact", nil).status)
}

// A bound key's reading of the log is of its own sessions, whatever it asks for.
func TestABoundKeyReadsItsOwnEventsOnly(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for _, identity := range []string{"ada", "bob"} {
		a := s.as("all", "POST", "/v1/sessions/of-"+identity+"/turns", map[string]any{"request_id": "r",
			"question_neutral": "q", "identity_id": identity})
		require.Equal(t, http.StatusCreated, a.status)
	}
	require.Contains(t, string(s.as("all", "GET", "/v1/events", nil).raw), "of-bob")
	for _, query := range []string{"", "?identity_id=ada", "?session_id=of-ada"} {
		a := s.as("ada", "GET", "/v1/events"+query, nil)
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, string(a.raw), "of-ada", query)
		require.NotContains(t, string(a.raw), "bob", query)
	}
	requireProblem(t, s.as("ada", "GET", "/v1/events?session_id=of-bob", nil), http.StatusNotFound, "session_not_found")
	requireProblem(t, s.as("ada", "GET", "/v1/events?session_id=none", nil), http.StatusNotFound, "session_not_found")
	requireProblem(t, s.as("ada", "GET", "/v1/events?identity_id=bob", nil), http.StatusNotFound, "not_found")
}
