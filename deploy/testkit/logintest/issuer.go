// Package logintest is an OpenID Connect issuer for tests. It signs everybody in as Subject.
package logintest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access/login"
)

// What the issuer knows its client by, and whom it signs in.
const (
	ClientID = "console"
	Secret   = "the client's secret"
	Audience = "turnledger"
	Subject  = "ada"
)

// Issuer is a running issuer.
type Issuer struct {
	*httptest.Server
	// Down makes the issuer answer 502. Asks makes it show a page with a link, #go, before it sends the browser back.
	Down, Asks atomic.Bool

	signer jose.Signer
	scope  atomic.Value

	mu    sync.Mutex
	codes map[string]url.Values // what each code was asked for with
}

// New starts an issuer that ends with the test. Its address is of localhost, so that to a page of 127.0.0.1 it is
// another site.
func New(t testing.TB) *Issuer {
	t.Helper()
	k := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	i := &Issuer{codes: map[string]url.Values{}}
	i.scope.Store("context:read events:read")
	i.signer = must.Get(jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k"}}, nil))(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint": i.URL + "/token", "id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.Public(), KeyID: "k", Use: "sig"}}})
	})
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("/token", i.token)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.Down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	i.URL = strings.Replace(i.URL, "127.0.0.1", "localhost", 1)
	t.Cleanup(i.Close)
	return i
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// Login returns the configuration of a Login at this issuer.
func (i *Issuer) Login(redirect string) login.Config {
	return login.Config{Issuer: i.URL, ClientID: ClientID, ClientSecret: Secret, Redirect: redirect}
}

// Scope sets the scopes of tokens that are made later.
func (i *Issuer) Scope(scope string) { i.scope.Store(scope) }

// authorize sends the browser back with a code.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = asked
	i.mu.Unlock()
	back := url.Values{"code": {code}, "state": {asked.Get("state")}}
	address := asked.Get("redirect_uri") + "?" + back.Encode()
	if i.Asks.Load() {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!DOCTYPE html><link rel="icon" href="data:,"><a id="go" href="` + html.EscapeString(address) +
			`">It is me</a>`))
		return
	}
	http.Redirect(w, r, address, http.StatusFound)
}

// token exchanges a code, once, for an access token and an ID token.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	code := r.FormValue("code")
	i.mu.Lock()
	asked, ok := i.codes[code]
	delete(i.codes, code)
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || id != ClientID || secret != url.QueryEscape(Secret) ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	answer(w, map[string]any{
		"token_type": "Bearer", "expires_in": 3600, "access_token": i.sign(Audience, ""),
		"id_token": i.sign(ClientID, asked.Get("nonce")),
	})
}

func (i *Issuer) sign(audience, nonce string) string {
	raw, _ := json.Marshal(map[string]any{ // strings and numbers always encode
		"iss": i.URL, "aud": audience, "sub": Subject, "scope": i.scope.Load(), "nonce": nonce,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	jws, err := i.signer.Sign(raw)
	if err != nil {
		return ""
	}
	text, _ := jws.CompactSerialize() // a signature that was just made is whole
	return text
}

// Visit signs in at an address of the issuer, and returns with what the browser is sent back.
func (i *Issuer) Visit(t testing.TB, address string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp := get(t, client, address)
	return must.Get(resp.Location())(t).Query()
}

// Status returns how the issuer answers.
func (i *Issuer) Status(t testing.TB) int {
	t.Helper()
	return get(t, http.DefaultClient, i.URL+"/keys").StatusCode
}

func get(t testing.TB, client *http.Client, address string) *http.Response {
	t.Helper()
	resp := must.Get(client.Do(must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)))(t)
	require.NoError(t, resp.Body.Close())
	return resp
}
