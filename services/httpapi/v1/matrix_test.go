package v1_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

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
)

// cell is a call of the OpenAPI document on one of the sessions.
type cell struct {
	method, path, body string
	hears              hearing
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
		c.hears, c.body = noSession, `{"content":"c"}`
	case strings.HasPrefix(pattern, "POST /v1/chat"):
		c.hears, c.body = noSession, `{"content":"c","thread_id":"`+session+`"}`
	case pattern == manyTurns:
		c.hears, c.body = noSession, `{"session_id":"`+session+`","request_id":"m","question_neutral":"q"}`
	case pattern == "GET /v1/receipts/{id}":
		c.hears = noIdentity // of no receipt, since nothing was erased here
	case pattern == "GET /v1/events":
		c.hears = noSession
		c.path += "?session_id=" + session
	}
	return c
}

// TestTheMatrixOfAuthorisation is made of the OpenAPI document: every call, with no scope,
// each one and all, on a session of the caller's own, another's, an anonymous one and one
// that there is not, by a key for all and by one that is bound to an identity. A call that
// is new fails the test until needs says what it needs.
func TestTheMatrixOfAuthorisation(t *testing.T) { // alone: others wait for moments
	sets := []access.Scopes{0, writes, reads, follows, redacts, operates, writes | reads, scopes}
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
						require.Equal(t, head, s.head(), what)
					case who == "free", session == own && c.hears != forbiddenToAll:
						require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden,
							http.StatusInternalServerError}, a.status, what)
						require.NotEqual(t, "session_not_found", a.body["code"], what)
					case c.hears == forbiddenToAll:
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

// documented returns the calls of the OpenAPI document with the scopes that it names. It fails where the document, the
// table and the router do not have the same calls.
func documented(t *testing.T, s *stack) map[string]access.Scopes {
	t.Helper()
	doc := s.do("GET", "/openapi.json", nil).body
	out, acrossSessions := map[string]access.Scopes{}, map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			pattern := strings.ToUpper(method) + " " + path
			want, ok := needs[pattern]
			require.True(t, ok, "%s: say in needs what it needs", pattern)
			var names []string
			ways := op.(map[string]any)["security"].([]any)
			for _, way := range ways {
				for _, name := range way.(map[string]any)["key"].([]any) {
					names = append(names, name.(string))
				}
			}
			told, err := access.ParseScopes(names)
			require.NoError(t, err)
			require.Equal(t, want, told, pattern)
			if len(ways) > 1 {
				acrossSessions[pattern] = true
				continue // TestCallsAcrossSessionsNeedOneOfTwoScopes
			}
			out[pattern] = want
		}
	}
	for pattern, route := range routes(s.api) {
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
	state := conversation.New(ask.SessionID, rules)
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
		api := newAPI(config{wireConfig{Auth: ring{"ada": {Scopes: scopes, IdentityID: "ada"}}}, v1Config{
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
