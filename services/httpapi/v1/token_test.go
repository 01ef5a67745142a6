package v1_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/tokens"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// issuing has callers of a ring make tokens.
type issuing struct {
	ring
	*tokens.Issuer
	late   atomic.Int64
	erased atomic.Bool
}

func (i *issuing) Authenticate(ctx context.Context, token string) (access.Caller, error) {
	if _, made := access.TokenBody(token); made {
		return i.Issuer.Authenticate(ctx, token)
	}
	return i.ring.Authenticate(ctx, token)
}

func newIssuing(callers ring, key string) *issuing {
	i := &issuing{ring: callers}
	i.Issuer = &tokens.Issuer{
		Key:    []byte(key),
		Maker:  func(name string) (access.Caller, error) { return i.ring.Authenticate(context.Background(), name) },
		Erased: func(context.Context, string) (bool, error) { return i.erased.Load(), nil },
		Now:    func() time.Time { return time.Now().Add(time.Duration(i.late.Load())) },
	}
	return i
}

const origin = "https://app.example.org"

// withTokens is a guarded API whose callers make tokens.
func withTokens(t *testing.T) (*stack, *issuing) {
	t.Helper()
	callers := ring{
		"maker": {Name: "maker", Scopes: scopes},
		"some":  {Name: "some", Scopes: writes | access.TokensIssue},
		"adas":  {Name: "adas", Scopes: writes | reads | access.TokensIssue, IdentityID: "ada"},
	}
	i := newIssuing(callers, "secret")
	s, _ := guarded(t, callers, func(c *config) {
		c.Auth, c.Tokens, c.Origins = i, i.Issuer, []string{origin}
	})
	return s, i
}

func (s *stack) token(maker, identity string, scopes ...string) string {
	s.t.Helper()
	a := s.as(maker, "POST", "/v1/tokens", map[string]any{"identity_id": identity, "expires_in": 60, "scopes": scopes})
	require.Equal(s.t, http.StatusCreated, a.status, "%s", a.raw)
	return a.body["token"].(string)
}

func TestTokensForBrowsers(t *testing.T) {
	t.Parallel()
	s, i := withTokens(t)
	turn := `{"request_id":"r","question_neutral":"q"}`
	require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/bobs/turns",
		`{"request_id":"r","question_neutral":"q","identity_id":"bob"}`).status)
	for name, body := range map[string]map[string]any{
		"too long":      {"identity_id": "ada", "expires_in": 3601, "scopes": []string{"context:read"}},
		"no time":       {"identity_id": "ada", "scopes": []string{"context:read"}},
		"nobody's":      {"expires_in": 60, "scopes": []string{"context:read"}},
		"no scope":      {"identity_id": "ada", "expires_in": 60, "scopes": []string{}},
		"the log":       {"identity_id": "ada", "expires_in": 60, "scopes": []string{"events:read"}},
		"more tokens":   {"identity_id": "ada", "expires_in": 60, "scopes": []string{"tokens:issue"}},
		"unknown scope": {"identity_id": "ada", "expires_in": 60, "scopes": []string{"everything"}},
	} {
		require.Equal(t, http.StatusUnprocessableEntity, s.as("maker", "POST", "/v1/tokens", body).status, name)
	}
	ask := map[string]any{"identity_id": "bob", "expires_in": 60, "scopes": []string{"context:read"}}
	for _, who := range []string{"some", "adas"} {
		requireProblem(t, s.as(who, "POST", "/v1/tokens", ask), http.StatusForbidden, "forbidden")
	}
	token := s.token("maker", "ada", "turns:write", "context:read")
	require.Equal(t, http.StatusCreated, s.as(token, "POST", "/v1/sessions/mine/turns", turn).status)
	require.Equal(t, "ada", s.as(token, "GET", "/v1/sessions/mine", nil).body["identity_id"])
	requireProblem(t, s.as(token, "GET", "/v1/sessions/bobs", nil), http.StatusNotFound, "session_not_found")
	redact := "/v1/sessions/mine/turns/" + s.state("mine").Turns[0].ID.String() + "/redact"
	requireProblem(t, s.as(token, "POST", redact, nil), http.StatusForbidden, "forbidden")
	requireProblem(t, s.as(token, "POST", "/v1/tokens", ask), http.StatusForbidden, "forbidden")
	readsOnly := s.token("adas", "ada", "context:read")
	require.Equal(t, http.StatusOK, s.as(readsOnly, "GET", "/v1/sessions/mine", nil).status)

	void := func(token, why string) {
		t.Helper()
		a := s.as(token, "GET", "/v1/sessions/mine", nil)
		require.Equal(t, http.StatusUnauthorized, a.status, why)
		requireProblem(t, a, http.StatusUnauthorized, "unauthenticated")
	}
	said, signature, _ := strings.Cut(token, ".")
	void(said+"."+signature[1:], "another signature")
	void(said+"."+strings.ToUpper(signature), "another signature")
	void(strings.Replace(said, "tlt1_", "tlt2_", 1)+"."+signature, "another version")
	void(said, "no signature")
	void("tlt1_.", "nothing")
	foreign := newIssuing(i.ring, "another secret")
	ctx := &wire.Call{Context: t.Context()}
	ctx.Caller = i.ring["maker"]
	forged, err := foreign.IssueToken(ctx, access.TokenAsk{IdentityID: "ada", Scopes: reads, Life: time.Minute})
	require.NoError(t, err)
	void(forged.Text, "under another key")
	i.erased.Store(true)
	void(token, "of an erased identity")
	requireProblem(t, s.as("maker", "POST", "/v1/tokens", ask), http.StatusGone, "session_erased")
	i.erased.Store(false)
	i.late.Store(int64(61 * time.Second))
	void(token, "that has expired")
	i.late.Store(0)
	require.Equal(t, http.StatusOK, s.as(token, "GET", "/v1/sessions/mine", nil).status)
	i.Key = nil
	a := s.as("maker", "POST", "/v1/tokens", ask)
	requireProblem(t, a, http.StatusServiceUnavailable, "auth_unavailable")
	require.Contains(t, a.body["detail"], "TURNLEDGER_TOKEN_KEY")
	void(token, "where there is no key")
	require.NotContains(t, s.logs.String(), said)
}

// Who takes a maker its key, or its scopes, takes them from its tokens.
func TestATokenEndsWithItsMaker(t *testing.T) {
	t.Parallel()
	s, i := withTokens(t)
	token := s.token("maker", "ada", "turns:write", "context:read")
	i.ring["maker"] = access.Caller{Name: "maker", Scopes: writes}
	requireProblem(t, s.as(token, "POST", "/v1/sessions/mine/context", `{"message":"m"}`), http.StatusForbidden,
		"forbidden")
	i.ring["maker"] = access.Caller{Name: "maker", Scopes: scopes, IdentityID: "bob"}
	requireProblem(t, s.as(token, "GET", "/v1/sessions/mine", nil), http.StatusUnauthorized, "unauthenticated")
	delete(i.ring, "maker")
	requireProblem(t, s.as(token, "GET", "/v1/sessions/mine", nil), http.StatusUnauthorized, "unauthenticated")
}

// A session that a bound caller begins is linked in the append that begins it; no read begins any.
func TestABoundCallerBeginsASession(t *testing.T) {
	t.Parallel()
	s, model := guarded(t, ring{})
	turn := `{"request_id":"r","question_neutral":"q","answer_neutral":"a"}`
	for name, identity := range map[string]string{"bobs": `,"identity_id":"bob"`, "nobodys": ""} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+name+"/turns",
			`{"request_id":"r","question_neutral":"q"`+identity+`}`).status)
	}
	head := s.head()
	for _, taken := range []string{"bobs", "nobodys"} {
		for _, body := range []string{turn, `{"request_id":"new","question_neutral":"q","identity_id":"ada"}`} {
			requireProblem(t, s.as("ada", "POST", "/v1/sessions/"+taken+"/turns", body), http.StatusNotFound,
				"session_not_found")
		}
	}
	for _, read := range []string{"GET /v1/sessions/new1", "GET /v1/sessions/new1/turns",
		"POST /v1/sessions/new1/context", "PATCH /v1/sessions/new1", "POST /v1/sessions/new1/reset"} {
		method, path, _ := strings.Cut(read, " ")
		body := ""
		if method != "GET" {
			body = `{}`
		}
		requireProblem(t, s.as("ada", method, path, body), http.StatusNotFound, "session_not_found")
	}
	require.Equal(t, head, s.head(), "nothing was recorded")
	require.Equal(t, http.StatusCreated, s.as("ada", "POST", "/v1/sessions/new1/turns", turn).status)
	require.Equal(t, head+2, s.head(), "link and turn")
	require.Equal(t, "ada", s.state("new1").Identity)
	require.Equal(t, http.StatusOK, s.as("ada", "POST", "/v1/sessions/new1/turns", turn).status, "again")
	line := s.as("ada", "POST", "/v1/turns", `{"session_id":"new2","request_id":"m","question_neutral":"q"}`)
	require.EqualValues(t, http.StatusCreated, line.body["http_status"], "%s", line.raw)
	require.Equal(t, "ada", s.state("new2").Identity)
	requireProblem(t, s.as("ada", "POST", "/v1/threads/new3/messages", `{"content":"c"}`), http.StatusBadGateway,
		"model_failed")
	require.Equal(t, "ada", model.last.Load().UserID)
	requireProblem(t, s.as("ada", "POST", "/v1/threads/bobs/messages", `{"content":"c"}`), http.StatusNotFound,
		"session_not_found")
}

// Web pages of the origins that are named call what browsers call, without credentials, and nothing that operates.
func TestWebPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	s, _ := withTokens(t)
	for call, may := range map[string]bool{
		"POST /v1/sessions/s/turns": true, "POST /v1/threads/t/messages": true, "GET /v1/sessions/s": true,
		"GET /v1/events": true, "PATCH /v1/sessions/s": true, "DELETE /v1/sessions/s": true,
		"POST /v1/tokens": false, "GET /v1/keys": false, "GET /v1/projections": false, "POST /v1/retention": false,
		"GET /v1/streams": false, "GET /v1/receipts/r": false, "GET /v1/stats": false, "GET /metrics": false,
		"PUT /v1/nothing": false,
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, from := range []string{origin, "https://evil.example.org", "null"} {
			asked := s.do("OPTIONS", path, nil, "Origin", from, "Access-Control-Request-Method", method,
				"Access-Control-Request-Headers", "authorization")
			made := s.do(method, path, nil, "Origin", from)
			for _, a := range []answer{asked, made} {
				require.Empty(t, a.header.Get("Access-Control-Allow-Credentials"))
				want := ""
				if may && from == origin {
					want = origin
					require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), "Stream-Next-Offset")
				}
				require.Equal(t, want, a.header.Get("Access-Control-Allow-Origin"), "%s from %s", call, from)
			}
			require.Equal(t, may && from == origin, asked.status == http.StatusNoContent, "%s from %s", call, from)
		}
	}
}
