package v1_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/whatif"
	"github.com/turnledger/turnledger/services/export/explain"
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
	issues   = access.TokensIssue

	scopes = writes | reads | follows | redacts | operates | issues
)

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
	s := startOn(t, events, append([]setting{func(c *config) {
		c.RefusalTime = time.Millisecond
		c.Open, c.Auth, c.Events, c.Chat, c.Keeper = false, callers, r, model, nothing{}
		c.Running, c.Responses = nothing{}, unanswered{}
		c.Erasures, c.Receipts, c.Retention = nothing{}, nothing{}, nothing{}
		c.Streams, c.Backups = operate.On(events), nothing{}
		c.People = nothing{}
		c.Tokens = newIssuing(callers, "secret").Issuer
		c.Keys = func() ([]access.Key, error) { return nil, nil }
		reader := read.New(events, read.Config{Rules: rules})
		c.LinkReader, c.Lookup = reader, reader
		prompts := contextbuilder.NewBuilder(reader, contextbuilder.Config{})
		c.Explain = explain.Service{Events: r, Sessions: reader, Contexts: prompts}
		c.WhatIfs = whatif.Service{Events: r, Prompts: prompts, Walk: func(ctx context.Context, id string) (whatif.Walk,
			error) {
			return reader.Walk(ctx, id)
		}}
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
	return method, strings.NewReplacer("{session_id}", session, "{thread_id}", session, "{chat_id}", session,
		"{turn_id}", events.TurnID(session, "r").String(),
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

// TestNoCallIsAnsweredWithoutAKey goes through the routes that there are. TestTheMatrixOfAuthorisation has those who
// bring one.
func TestNoCallIsAnsweredWithoutAKey(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for pattern, route := range routes(s.api) {
		method, path := fill(pattern, "s")
		if route.needs == anybody {
			require.Equal(t, http.StatusOK, s.do(method, path, nil).status, pattern)
			require.Equal(t, http.StatusOK, s.as("wrong", method, path, nil).status, pattern)
			continue
		}
		for _, header := range [][]string{nil, {"Authorization", ""}, {"Authorization", "Bearer"},
			{"Authorization", "Bearer "}, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer ended"},
			{"Authorization", "Basic all"}, {"Authorization", "all"}, {"Authorization", "Bearer all all"},
			{"Authorization", "Bearer ALL"}, {"X-Api-Key", "all"}, {"Cookie", "Authorization=Bearer all"}} {
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
	must.Lack(t, s.logs.String(), "Bearer")
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
			Handle: func(http.ResponseWriter, *http.Request) error { panic("it was answered") }}}
		s.api.Mount(forgotten)
		requireProblem(t, s.as("all", "GET", "/v1/forgotten", nil), http.StatusForbidden, "forbidden")
	}
}

// An API without an Authenticator that nobody declared open lets nobody in.
func TestWithoutAnAuthenticatorNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config) { c.Open = false })
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
				if session == "unknown" && pattern == startTurn {
					continue // it begins it
				}
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

	for _, path := range []string{"/v1/threads/foreign/messages", "/v1/threads/anonymous/messages/stream"} {
		requireProblem(t, s.as("ada", "POST", path, `{"content":"c"}`), http.StatusNotFound, "session_not_found")
	}
	for _, body := range []string{`{"content":"c","thread_id":"foreign"}`, `{"content":"c","thread_id":"anonymous"}`} {
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

// ring knows callers by their tokens.
type ring map[string]access.Caller

func (r ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	c, ok := r[token]
	if token == "ended" {
		return access.Caller{}, access.ErrKeyEnded
	}
	if !ok {
		return access.Caller{}, access.ErrUnauthenticated
	}
	return c, nil
}

// silentModel fails every message, and keeps the last.
type silentModel struct {
	last atomic.Pointer[services.ChatMessage]
}

func (s *silentModel) Send(_ context.Context, m services.ChatMessage, _ services.Listener) (services.ChatReply,
	error) {
	s.last.Store(&m)
	return services.ChatReply{}, services.ErrModelFailed
}

// nothing has no views and erases nothing.
type nothing struct{}

// unanswered has no answers.
type unanswered struct{ services.Responder }

func (unanswered) Respond(context.Context, services.StepAsk, services.Listener) (services.Answered, error) {
	return services.Answered{}, services.ErrModelFailed
}

func (unanswered) WatchResponse(context.Context, string, services.Caller, services.Listener) error {
	return services.ErrNoResponse
}

func (nothing) Rebuild(context.Context, string) (uint64, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) CancelRebuild(context.Context, string) (uint64, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) Verify(context.Context, string, int, func(done, of uint64) error,
	func(projections.Difference) error) (int, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) Watch(context.Context, string, uuid.UUID, services.Listener) error {
	return services.ErrNotRunning
}

func (nothing) StopAnswer(context.Context, string, uuid.UUID) (uuid.UUID, error) {
	return uuid.Nil, services.ErrNotRunning
}

func (nothing) Archive(context.Context, string, io.Writer) error { return projections.ErrUnavailable }

func (nothing) EraseSession(context.Context, string, services.Erasure) (string, error) {
	return "", projections.ErrUnavailable
}

func (nothing) EraseIdentity(context.Context, string, services.Erasure) (string, error) {
	return "", projections.ErrUnavailable
}

func (nothing) Receipt(context.Context, string) (services.Receipt, error) {
	return services.Receipt{}, services.ErrNoReceipt
}

func (nothing) Receipts(context.Context, services.ReceiptsAsk) (services.ReceiptPage, error) {
	return services.ReceiptPage{}, nil
}

func (nothing) Sweep(context.Context) (services.Swept, error) {
	return services.Swept{}, projections.ErrUnavailable
}

func (nothing) DrySweep(context.Context) (services.Swept, error) {
	return services.Swept{}, projections.ErrUnavailable
}

func (nothing) Snapshot(_ context.Context, _ int, begin func(operate.Moment) (io.Writer, error)) error {
	_, err := begin(operate.Moment{})
	return err
}

func (nothing) Restore(context.Context, io.Reader) (services.Restored, error) {
	return services.Restored{}, nil
}

// Whose sessions the matrix goes through, seen from ada. An identity of the same name
// stands for a session where a call names an identity.
const (
	own, foreign, anonymous, unknown = "own", "foreign", "anonymous", "unknown"
)

// what a caller who is bound to an identity hears of a session that is not his.
type hearing int

const (
	forbiddenToAll hearing = iota // the call is not for such callers
	noSession                     // 404 session_not_found
	noIdentity                    // 404 not_found
	noOther                       // 403 forbidden, for another identity
	nothingRuns                   // 204
)

// cell is a call of the OpenAPI document on one of the sessions.
type cell struct {
	method, path, body string
	hears              hearing
	// begins: the call begins a session that there is not.
	begins bool
}

// cellOf puts a session, or an identity, where a call names one.
func cellOf(pattern, session string) cell {
	c := cell{body: bodyFor(pattern)}
	c.method, c.path = fill(strings.ReplaceAll(pattern, "{identity_id}", map[string]string{own: "ada", foreign: "bob",
		anonymous: "nobody", unknown: "nobody2"}[strings.TrimRight(session, "0123456789")]), session)
	switch {
	case strings.Contains(pattern, "{session_id}"):
		c.hears = noSession
	case strings.Contains(pattern, "{identity_id}"):
		c.hears = noIdentity
	case strings.Contains(pattern, "{thread_id}"):
		if c.hears = noSession; strings.HasPrefix(pattern, "POST ") && strings.Contains(pattern, "/messages") {
			c.body = `{"content":"c"}`
		}
	case pattern == "GET /v1/ui/chat/{chat_id}/stream":
		c.hears = nothingRuns
	case strings.Contains(pattern, "{chat_id}"):
		c.hears = noSession
	case pattern == "POST /v1/ui/chat":
		c.hears = noSession
		c.body = `{"id":"` + session + `","message":{"id":"m","role":"user","parts":[{"type":"text","text":"q"}]}}`
	case strings.HasPrefix(pattern, "POST /v1/chat"):
		c.hears, c.body = noSession, `{"content":"c","thread_id":"`+session+`"}`
	case pattern == manyTurns:
		c.hears, c.body = noSession, `{"session_id":"`+session+`","request_id":"m","question_neutral":"q"}`
	case pattern == "POST /v1/tokens":
		c.hears = noOther
		c.body = `{"identity_id":"` + map[string]string{own: "ada"}[session] + `x","expires_in":1,"scopes":[]}`
		c.body = strings.Replace(c.body, "adax", "ada", 1)
	case pattern == "GET /v1/receipts/{id}":
		c.hears = noIdentity // of no receipt, since nothing was erased here
	case pattern == "GET /v1/events":
		c.hears = noSession
		c.path += "?session_id=" + session
	}
	c.begins = pattern == startTurn || pattern == manyTurns || strings.Contains(c.body, `{"content"`) ||
		pattern == "POST /v1/ui/chat"
	return c
}

// startTurn is the call with which a bound caller begins a session.
const startTurn = "POST /v1/sessions/{session_id}/turns"

// TestTheMatrixOfAuthorisation is made of the OpenAPI document: every call, with no scope,
// each one and all, on a session of the caller's own, another's, an anonymous one and one
// that there is not, by a key for all and by one that is bound to an identity. A call that
// is new fails the test until needs says what it needs.
func TestTheMatrixOfAuthorisation(t *testing.T) { // alone: others wait for moments
	sets := []access.Scopes{0, writes, reads, follows, redacts, operates, issues, writes | reads, scopes}
	callers := ring{}
	for _, set := range sets {
		callers[fmt.Sprint("free", set)] = access.Caller{Name: "free", Scopes: set}
		callers[fmt.Sprint("bound", set)] = access.Caller{Name: "bound", Scopes: set, IdentityID: "ada"}
	}
	s, _ := guarded(t, callers)
	for session, identity := range map[string]string{own: "ada", foreign: "bob", anonymous: ""} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+session+"/turns", `{"request_id":"r","question_neutral":"q"}`).status)
		if identity != "" {
			require.Equal(t, http.StatusOK, s.as("all", "PUT", "/v1/sessions/"+session+"/identity",
				map[string]any{"identity_id": identity}).status)
		}
	}
	require.ElementsMatch(t, []string{"Counts", "Identities", "Limiter", "Lists", "Messages", "Projections",
		"Search", "Similar"}, unset(s.cfg.v1Config, s.cfg.Ports, s.cfg.Rules),
		"give guarded what else there is, so that its calls are here")
	require.Equal(t, []string{"Traces"}, unset(s.cfg.wireConfig))
	calls := documented(t, s)
	cells := 0
	// What a bound caller may not do changes nothing, so that it goes first.
	for _, who := range []string{"bound", "free"} {
		for pattern, want := range calls {
			for _, set := range sets {
				said := map[string]bool{}
				for _, session := range []string{own, foreign, anonymous, unknown} {
					cells++
					named := session
					if session == unknown {
						named += fmt.Sprint(cells) // a call that may makes it known
					}
					c := cellOf(pattern, named)
					head := s.head()
					a := s.as(fmt.Sprint(who, set), c.method, c.path, c.body)
					if pattern == manyTurns && a.status == http.StatusOK {
						a = lineAsAnswer(t, a)
					}
					what := fmt.Sprintf("%s with %v, %s, %s session: %d %s", pattern, set.Names(), who, session,
						a.status, a.raw)
					switch {
					case set&want != want:
						requireProblem(t, a, http.StatusForbidden, "forbidden")
						must.Contain(t, fmt.Sprint(a.body["detail"]), (want &^ set).Names()...)
						require.Equal(t, head, s.head(), what)
					case who == "free", session == own && c.hears != forbiddenToAll, session == unknown && c.begins:
						require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden,
							http.StatusInternalServerError}, a.status, what)
						require.NotEqual(t, "session_not_found", a.body["code"], what)
					case c.hears == nothingRuns:
						require.Equal(t, http.StatusNoContent, a.status, what)
						require.Empty(t, a.raw)
					case c.hears == forbiddenToAll, c.hears == noOther:
						requireProblem(t, a, http.StatusForbidden, "forbidden")
						require.Equal(t, head, s.head(), what)
					default:
						requireProblem(t, a, http.StatusNotFound, map[hearing]string{noSession: "session_not_found",
							noIdentity: "not_found"}[c.hears])
						require.Equal(t, head, s.head(), what)
						said[fmt.Sprint(a.status, a.header.Get("Content-Type"), a.header.Get("Content-Length"),
							string(a.raw))] = true
					}
				}
				require.LessOrEqual(t, len(said), 1, "%s tells sessions apart: %v", pattern, said)
			}
		}
	}
	require.Equal(t, 2*len(calls)*len(sets)*4, cells)
}

// manyTurns is the call that answers each line of its body by itself.
const manyTurns = "POST /v1/turns"

// lineAsAnswer returns the one line of an answer as the single call would have answered it.
func lineAsAnswer(t *testing.T, a answer) answer {
	t.Helper()
	line := a.body
	require.NotNil(t, line, "%s", a.raw)
	out := answer{status: int(line["http_status"].(float64)), header: a.header, raw: a.raw, body: map[string]any{}}
	if line["code"] == nil {
		return out
	}
	out.header = http.Header{"Content-Type": {"application/problem+json"}}
	for _, name := range []string{"code", "detail"} {
		out.body[name] = line[name]
	}
	out.body["status"], out.body["type"], out.body["title"] = line["http_status"], "t", "t" // a line has neither
	return out
}

// documented returns the calls of the OpenAPI document with the scopes that it names. It fails where the document and
// the router do not have the same calls, or another scope.
func documented(t *testing.T, s *stack) map[string]access.Scopes {
	t.Helper()
	doc := s.do("GET", "/openapi.json", nil).body
	out, acrossSessions, routed := map[string]access.Scopes{}, map[string]bool{}, routes(s.api)
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			pattern := strings.ToUpper(method) + " " + path
			want := routed[pattern].needs
			var names []string
			ways := op.(map[string]any)["security"].([]any)
			for _, way := range ways {
				for _, name := range way.(map[string]any)["key"].([]any) {
					names = append(names, name.(string))
				}
			}
			require.Equal(t, want, must.Get(access.ParseScopes(names))(t), pattern)
			if len(ways) > 1 {
				acrossSessions[pattern] = true
				continue // TestCallsAcrossSessionsNeedOneOfTwoScopes
			}
			out[pattern] = want
		}
	}
	for pattern, route := range routed {
		if route.needs != anybody && !acrossSessions[pattern] {
			require.Contains(t, out, pattern, "a call that the document does not tell of")
		}
	}
	require.Greater(t, len(out), 20)
	return out
}

// slowOwners take the longer the more there is to read.
type slowOwners map[string]time.Duration

func (s slowOwners) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	<-time.After(s[ask.SessionID])
	state := session.New(ask.SessionID, rules)
	if s[ask.SessionID] > 0 {
		state.Identity = "bob"
	}
	return services.Reading{State: state}, nil
}

// A session that has to be looked up for long is refused after the same time as one that
// there is not.
func TestARefusalTakesAsLongWhateverItsReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		auth := ring{"ada": {Scopes: scopes, IdentityID: "ada"}}
		api := newAPI(config{wireConfig: wireConfig{Auth: auth}, v1Config: v1Config{
			Ports: services.Ports{Sessions: slowOwners{}, Rules: services.Rules{LinkReader: slowOwners{
				"warm": 3 * time.Millisecond, "cold": 300 * time.Millisecond,
			}}},
		}})
		for _, session := range []string{"unknown", "warm", "cold", ".."} {
			r := httptest.NewRequest("GET", "/v1/sessions/"+session, nil)
			r.Header.Set("Authorization", "Bearer ada")
			began := time.Now()
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			require.Equal(t, http.StatusNotFound, w.Code)
			require.Equal(t, 500*time.Millisecond, time.Since(began), session)
		}
	})
}
