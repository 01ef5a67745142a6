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
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// issuerOf serves an OpenID Connect issuer with one key; sign makes its tokens.
func issuerOf(t *testing.T) (url string, sign func(subject, scope string) string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	serve := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	serve("/.well-known/openid-configuration", map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys"})
	serve("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.Public(), KeyID: "k", Use: "sig"}}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k"}}, nil)
	require.NoError(t, err)
	return s.URL, func(subject, scope string) string {
		raw, err := json.Marshal(map[string]any{"iss": s.URL, "aud": "turnledger", "sub": subject, "scope": scope, "exp": time.Now().Add(time.Hour).Unix()})
		require.NoError(t, err)
		jws, err := signer.Sign(raw)
		require.NoError(t, err)
		text, err := jws.CompactSerialize()
		require.NoError(t, err)
		return text
	}
}

// Two processes' worth of callers at one server: keys of a file, and users with tokens of
// an issuer, who reach their own sessions alone. A revoked key ends in both processes.
func TestUsersComeWithTokensAndPipelinesWithKeys(t *testing.T) {
	t.Parallel()
	issuer, sign := issuerOf(t)
	dir := dataDir(t)
	file := filepath.Join(dir, "secrets", "keys.json")
	key, prefix := madeKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	address := freeAddress(t)
	env := []string{"TURNLEDGER_AUTH=keys:" + file + ",oidc:" + issuer, "TURNLEDGER_AUTH_AUDIENCE=turnledger", "TURNLEDGER_AUTH_SERVICES=robot", "TURNLEDGER_VERBOSE=true", "TURNLEDGER_SYNC=always"}
	p := start(t, append(env, "TURNLEDGER_NATS_LISTEN="+address), "serve", "--data-dir", dir)
	second := start(t, append(env, "TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_NATS_URL=nats://"+address), "serve", "--roles", "api,context", "--data-dir", dataDir(t))
	as := func(p *process, token, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewBufferString(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode, string(raw)
	}
	for id, who := range map[string]string{"of-ada": "ada", "of-bob": "bob"} {
		status, body := as(p, key, http.MethodPost, session(id)+"/turns", `{"request_id":"r","question_neutral":"q","identity_id":"`+who+`"}`)
		require.Equal(t, http.StatusCreated, status, body)
	}
	ada := sign("ada", "openid context:read turns:write admin")
	for _, server := range []*process{p, second} {
		status, _ := as(server, ada, http.MethodGet, session("of-ada"), "")
		require.Equal(t, http.StatusOK, status)
		foreignStatus, foreign := as(server, ada, http.MethodGet, session("of-bob"), "")
		unknownStatus, unknown := as(server, ada, http.MethodGet, session("of-nobody"), "")
		require.Equal(t, []int{http.StatusNotFound, http.StatusNotFound}, []int{foreignStatus, unknownStatus})
		require.Equal(t, foreign, unknown)
	}
	status, body := as(p, ada, http.MethodPost, session("of-ada")+"/turns", `{"request_id":"r2","question_neutral":"q"}`)
	require.Equal(t, http.StatusCreated, status, body)
	status, _ = as(p, ada, http.MethodGet, "/v1/projections", "")
	require.Equal(t, http.StatusForbidden, status)
	robot := sign("robot", "context:read")
	status, _ = as(p, robot, http.MethodGet, session("of-bob"), "")
	require.Equal(t, http.StatusOK, status)

	code, _, errs := said(t, "keys", "revoke", prefix, "--auth", "keys:"+file+",oidc:"+issuer)
	require.Equal(t, exitDone, code, errs)
	for _, server := range []*process{p, second} {
		require.Eventually(t, func() bool {
			status, _ := as(server, key, http.MethodGet, session("of-bob"), "")
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
