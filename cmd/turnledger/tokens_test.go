package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// issuerOf serves an OpenID Connect issuer with one key, which is out while out is true; sign makes its tokens.
func issuerOf(t *testing.T) (url string, out *atomic.Bool, sign func(subject, scope string) string) {
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
		raw, err := json.Marshal(map[string]any{"iss": s.URL, "aud": "turnledger", "sub": subject, "scope": scope, "exp": time.Now().Add(time.Hour).Unix()})
		require.NoError(t, err)
		jws, err := signer.Sign(raw)
		require.NoError(t, err)
		text, err := jws.CompactSerialize()
		require.NoError(t, err)
		return text
	}
}

// as asks with a key or a token.
func (p *process) as(t *testing.T, token, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// Without a word of the issuer nobody can check a token. Keys are checked without it, so that a
// process which takes them is ready.
func TestKeysCountBeforeTheIssuerIsHeard(t *testing.T) {
	t.Parallel()
	issuer, out, sign := issuerOf(t)
	out.Store(true)
	file := filepath.Join(dataDir(t), "keys.json")
	key, _ := madeKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	serve := func(auth string) *process {
		return launch(t, []string{"TURNLEDGER_AUTH=" + auth + "oidc:" + issuer, "TURNLEDGER_AUTH_AUDIENCE=turnledger"}, "serve", "--data-dir", dataDir(t))
	}
	alone, both := serve(""), serve("keys:"+file+",")
	both.waitReady(t)
	ready := both.must(t, http.StatusOK, http.MethodGet, "/readyz", nil)
	require.Equal(t, "degraded", ready["status"], ready)
	check := ready["checks"].(map[string]any)["issuer"].(map[string]any)
	require.Contains(t, check["reason"], "the issuer of tokens has not told its keys yet")
	require.NotEmpty(t, check["since"])
	status, body := both.as(t, key, http.MethodGet, session("s"), "")
	require.Equal(t, http.StatusOK, status, body)
	status, body = both.as(t, sign("ada", "context:read"), http.MethodGet, session("s"), "")
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	require.Contains(t, body, "auth_unavailable")

	require.Eventually(t, func() bool {
		status, ready, err := alone.call(t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusServiceUnavailable && ready["checks"].(map[string]any)["log"].(map[string]any)["ok"] == true
	}, time.Minute, 50*time.Millisecond, "only tokens count there: %s", alone.log)
	out.Store(false)
	for _, p := range []*process{alone, both} {
		require.Eventually(t, func() bool {
			_, ready, err := p.call(t.Context(), http.MethodGet, "/readyz", nil)
			return err == nil && ready["status"] == "ok"
		}, time.Minute, 50*time.Millisecond)
	}
}

// Two processes' worth of callers at one server: keys of a file, and users with tokens of
// an issuer, who reach their own sessions alone. A revoked key ends in both processes.
func TestUsersComeWithTokensAndPipelinesWithKeys(t *testing.T) {
	t.Parallel()
	issuer, _, sign := issuerOf(t)
	dir := dataDir(t)
	file := filepath.Join(dir, "secrets", "keys.json")
	key, prefix := madeKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	address := freeAddress(t)
	env := []string{"TURNLEDGER_AUTH=keys:" + file + ",oidc:" + issuer, "TURNLEDGER_AUTH_AUDIENCE=turnledger", "TURNLEDGER_AUTH_SERVICES=robot", "TURNLEDGER_VERBOSE=true", "TURNLEDGER_SYNC=always"}
	p := start(t, append(env, "TURNLEDGER_NATS_LISTEN="+address), "serve", "--data-dir", dir)
	second := start(t, append(env, "TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_NATS_URL=nats://"+address), "serve", "--roles", "api,context", "--data-dir", dataDir(t))
	for id, who := range map[string]string{"of-ada": "ada", "of-bob": "bob"} {
		status, body := p.as(t, key, http.MethodPost, session(id)+"/turns", `{"request_id":"r","question_neutral":"q","identity_id":"`+who+`"}`)
		require.Equal(t, http.StatusCreated, status, body)
	}
	ada := sign("ada", "openid context:read turns:write admin")
	for _, server := range []*process{p, second} {
		status, _ := server.as(t, ada, http.MethodGet, session("of-ada"), "")
		require.Equal(t, http.StatusOK, status)
		foreignStatus, foreign := server.as(t, ada, http.MethodGet, session("of-bob"), "")
		unknownStatus, unknown := server.as(t, ada, http.MethodGet, session("of-nobody"), "")
		require.Equal(t, []int{http.StatusNotFound, http.StatusNotFound}, []int{foreignStatus, unknownStatus})
		require.Equal(t, foreign, unknown)
	}
	status, body := p.as(t, ada, http.MethodPost, session("of-ada")+"/turns", `{"request_id":"r2","question_neutral":"q"}`)
	require.Equal(t, http.StatusCreated, status, body)
	status, _ = p.as(t, ada, http.MethodGet, "/v1/projections", "")
	require.Equal(t, http.StatusForbidden, status)
	robot := sign("robot", "context:read")
	status, _ = p.as(t, robot, http.MethodGet, session("of-bob"), "")
	require.Equal(t, http.StatusOK, status)

	code, _, errs := said(t, "keys", "revoke", prefix, "--auth", "keys:"+file+",oidc:"+issuer)
	require.Equal(t, exitDone, code, errs)
	for _, server := range []*process{p, second} {
		require.Eventually(t, func() bool {
			status, _ := server.as(t, key, http.MethodGet, session("of-bob"), "")
			return status == http.StatusUnauthorized
		}, 30*time.Second, 50*time.Millisecond)
	}
	second.stop(t)
	p.stop(t)
	for _, secret := range []string{ada, robot, key} {
		require.NotContains(t, p.log.String()+second.log.String(), secret[len(secret)/2:])
	}
	require.NotContains(t, p.log.String(), "ada\n")
	p.says(t, "caller=sub_")
}
