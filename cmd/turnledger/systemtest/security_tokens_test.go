package systemtest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// startIssuer serves an OpenID Connect issuer with one key, which is out while out is true; sign makes
// its tokens.
func startIssuer(t *testing.T) (url string, out *atomic.Bool, sign func(subject, scope string) string) {
	t.Helper()
	out = &atomic.Bool{}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	serve := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if out.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	serve("/.well-known/openid-configuration", map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys"})
	serve("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.Public(), KeyID: "k", Use: "sig"}}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k"}}, nil)
	require.NoError(t, err)
	return s.URL, out, func(subject, scope string) string {
		raw, err := json.Marshal(map[string]any{"iss": s.URL, "aud": "turnledger", "sub": subject, "scope": scope,
			"exp": time.Now().Add(time.Hour).Unix()})
		require.NoError(t, err)
		jws, err := signer.Sign(raw)
		require.NoError(t, err)
		text, err := jws.CompactSerialize()
		require.NoError(t, err)
		return text
	}
}

// Until the issuer has published its keys no token can be checked. API keys need no issuer, so a process that accepts
// them is ready.
func TestKeysCountBeforeTheIssuerIsHeard(t *testing.T) {
	t.Parallel()
	issuer, out, sign := startIssuer(t)
	out.Store(true)
	file := filepath.Join(stack.DataDir(t), "keys.json")
	key, _ := createKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	serve := func(auth string) *stack.Process {
		return stack.Launch(t, []string{"TURNLEDGER_AUTH=" + auth + "oidc:" + issuer,
			"TURNLEDGER_AUTH_AUDIENCE=turnledger"}, "serve", "--data-dir", stack.DataDir(t))
	}
	alone, both := serve(""), serve("keys:"+file+",")
	both.WaitReady(t)
	ready := both.Get(t, "/readyz")
	require.Equal(t, "degraded", ready["status"], ready)
	check := ready["checks"].(map[string]any)["issuer"].(map[string]any)
	require.Contains(t, check["reason"], "the issuer of tokens has not told its keys yet")
	require.NotEmpty(t, check["since"])
	status, body := requestBody(t, both, key, http.MethodGet, stack.SessionPath("s"), "")
	require.Equal(t, http.StatusOK, status, body)
	status, body = requestBody(t, both, sign("ada", "context:read"), http.MethodGet, stack.SessionPath("s"), "")
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	require.Contains(t, body, "auth_unavailable")

	hang.Until(t, func() bool {
		status, ready, err := alone.Call(t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusServiceUnavailable &&
			ready["checks"].(map[string]any)["log"].(map[string]any)["ok"] == true
	}, "only tokens count there: %s", alone.Log)
	out.Store(false)
	for _, p := range []*stack.Process{alone, both} {
		hang.Until(t, func() bool {
			_, ready, err := p.Call(t.Context(), http.MethodGet, "/readyz", nil)
			return err == nil && ready["status"] == "ok"
		})
	}
}

// One server accepts keys of a file and tokens of an issuer. Users with tokens reach only their own sessions. A revoked
// key ends at every process, and a sign-in to the console counts at every one.
func TestTokensOfUsersBesideKeysOfPipelines(t *testing.T) {
	t.Parallel()
	issuer, _, sign := startIssuer(t)
	dir := stack.DataDir(t)
	file := filepath.Join(dir, "secrets", "keys.json")
	key, _ := createKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	address := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_AUTH=keys:" + file + ",oidc:" + issuer, "TURNLEDGER_AUTH_AUDIENCE=turnledger",
		"TURNLEDGER_AUTH_SERVICES=robot", "TURNLEDGER_VERBOSE=true"}
	p := stack.Start(t, append(env, stack.ServeNATS(address)...), "serve", "--data-dir", dir)
	joined := append(env, stack.JoinNATS(address)...)
	second := stack.Start(t, joined, "serve", "--roles", "api,context")
	for id, who := range map[string]string{"of-ada": "ada", "of-bob": "bob"} {
		status, body := requestBody(t, p, key, http.MethodPost, stack.SessionPath(id)+"/turns",
			`{"request_id":"r","question_neutral":"q","identity_id":"`+who+`"}`)
		require.Equal(t, http.StatusCreated, status, body)
	}
	ada := sign("ada", "openid context:read turns:write admin")
	for _, server := range []*stack.Process{p, second} {
		status, _ := requestBody(t, server, ada, http.MethodGet, stack.SessionPath("of-ada"), "")
		require.Equal(t, http.StatusOK, status)
		foreignStatus, foreign := requestBody(t, server, ada, http.MethodGet, stack.SessionPath("of-bob"), "")
		unknownStatus, unknown := requestBody(t, server, ada, http.MethodGet, stack.SessionPath("of-nobody"), "")
		require.Equal(t, []int{http.StatusNotFound, http.StatusNotFound}, []int{foreignStatus, unknownStatus})
		require.Equal(t, foreign, unknown)
	}
	status, body := requestBody(t, p, ada, http.MethodPost, stack.SessionPath("of-ada")+"/turns",
		`{"request_id":"r2","question_neutral":"q"}`)
	require.Equal(t, http.StatusCreated, status, body)
	status, _ = requestBody(t, p, ada, http.MethodGet, "/v1/projections", "")
	require.Equal(t, http.StatusForbidden, status)
	robot := sign("robot", "context:read")
	status, _ = requestBody(t, p, robot, http.MethodGet, stack.SessionPath("of-bob"), "")
	require.Equal(t, http.StatusOK, status)

	revokedKeysEnd(t, file, []*stack.Process{p, second})
	signIn(t, file, p, second, stack.Start(t, append(joined, "TURNLEDGER_CONSOLE=off"), "serve", "--roles", "context"))
	second.Stop(t)
	p.Stop(t)
	for _, secret := range []string{ada, robot, key} {
		require.NotContains(t, p.Log.String()+second.Log.String(), secret[len(secret)/2:])
	}
	require.NotContains(t, p.Log.String(), "ada\n")
	p.WaitLog(t, "caller=sub_")
}
