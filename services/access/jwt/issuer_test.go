package jwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/jwt"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// issuer is an OpenID Connect issuer on this machine.
type issuer struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	keys map[string]crypto.Signer // by key id: what it tells
	down bool
	hits int // requests for keys
}

func newIssuer(t *testing.T, ids ...string) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]crypto.Signer{}}
	for _, id := range ids {
		i.keys[id] = key(t)
	}
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

func key(t *testing.T) crypto.Signer {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.down:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/openid-configuration":
		// It would like algorithms to count that must not.
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys",
			"id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256", "RS256"}})
	case r.URL.Path == "/keys":
		i.hits++
		// One of a kind that this version does not know, and one that may not sign.
		set := []any{map[string]any{"kty": "AKP", "kid": "new", "alg": "ML-DSA-44"},
			jose.JSONWebKey{Key: key(i.t).Public(), KeyID: "other", Use: "enc"}}
		for id, k := range i.keys {
			set = append(set, jose.JSONWebKey{Key: k.Public(), KeyID: id, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
	default:
		http.NotFound(w, r)
	}
}

func (i *issuer) change(do func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do()
}

func (i *issuer) asked() (n int) {
	i.change(func() { n = i.hits })
	return n
}

// claims of ada's token that ends in an hour, changed.
func (i *issuer) claims(change map[string]any) map[string]any {
	c := map[string]any{"iss": i.url, "aud": "turnledger", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix(),
		"scope": "openid turns:write context:read admin"}
	maps.Copy(c, change)
	for name, v := range change {
		if v == nil {
			delete(c, name)
		}
	}
	return c
}

// token signs claims.
func (i *issuer) token(id string, change map[string]any) string {
	i.t.Helper()
	var k crypto.Signer
	i.change(func() { k = i.keys[id] })
	alg := jose.ES256
	if _, ok := k.(*rsa.PrivateKey); ok {
		alg = jose.RS256
	}
	return signed(i.t, alg, id, k, i.claims(change))
}

func signed(t *testing.T, alg jose.SignatureAlgorithm, id string, k any, claims any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	s := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: k}, options))(t)
	raw := must.Get(json.Marshal(claims))(t)
	jws := must.Get(s.Sign(raw))(t)
	return must.Get(jws.CompactSerialize())(t)
}

func (i *issuer) verifier(change func(*jwt.Config)) *jwt.Issuer {
	i.t.Helper()
	cfg := jwt.Config{URL: i.url, Audience: "turnledger", Services: []string{"pipeline"},
		Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if change != nil {
		change(&cfg)
	}
	return must.Get(jwt.New(cfg))(i.t)
}

const bound = access.TurnsWrite | access.ContextRead

func TestWhoseTokenItIs(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "k1")
	v := i.verifier(nil)
	for name, c := range map[string]struct {
		change map[string]any
		want   access.Caller
	}{
		"a user, without the admin that the token claims": {nil, access.Caller{Scopes: bound, IdentityID: "ada"}},
		"several audiences": {map[string]any{"aud": []string{"x", "turnledger"}}, access.Caller{Scopes: bound,
			IdentityID: "ada"}},
		"scopes in a list": {map[string]any{"scope": []string{"context:read", "profile"}},
			access.Caller{Scopes: access.ContextRead, IdentityID: "ada"}},
		"no scope that is ours": {map[string]any{"scope": "openid TURNS:WRITE"}, access.Caller{IdentityID: "ada"}},
		"scopes of no known form": {map[string]any{"scope": map[string]any{"turns:write": true}},
			access.Caller{IdentityID: "ada"}},
		"a service": {map[string]any{"sub": "pipeline"}, access.Caller{Scopes: bound | access.Admin}},
		"ended within the leeway": {map[string]any{"exp": time.Now().Add(-30 * time.Second).Unix()},
			access.Caller{Scopes: bound, IdentityID: "ada"}},
		"begins within the leeway": {map[string]any{"nbf": time.Now().Add(30 * time.Second).Unix()},
			access.Caller{Scopes: bound, IdentityID: "ada"}},
	} {
		got := must.Get(v.Authenticate(t.Context(), i.token("k1", c.change)))(t, name)
		require.NotContains(t, got.Name, "ada")
		require.NotEmpty(t, got.Name)
		require.False(t, got.Until.IsZero(), name)
		got.Name, got.Until = "", time.Time{}
		require.Equal(t, c.want, got, name)
	}
	by := i.verifier(func(c *jwt.Config) { c.IdentityClaim, c.ScopesClaim = "email", "permissions" })
	got := must.Get(by.Authenticate(t.Context(), i.token("k1", map[string]any{"email": "ada@example.org",
		"permissions": []string{"events:read"}})))(t)
	require.Equal(t, "ada@example.org", got.IdentityID)
	require.Equal(t, access.EventsRead, got.Scopes)
	_, err := by.Authenticate(t.Context(), i.token("k1", nil))
	require.ErrorIs(t, err, access.ErrUnauthenticated, "who it is can't be told: not everybody, but nobody")
}

// What anybody could have made, or was made for something else, counts for nothing.
func TestTokensThatCountForNothing(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "k1")
	old := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	i.keys["rsa"] = old
	v := i.verifier(nil)
	good := i.token("k1", nil)
	must.Get(v.Authenticate(t.Context(), good))(t)
	must.Get(v.Authenticate(t.Context(), i.token("rsa", nil)))(t)

	der := must.Get(x509.MarshalPKIXPublicKey(old.Public()))(t)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	part := func(v any) string {
		raw := must.Get(json.Marshal(v))(t)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	head, payload, sig := split(t, good)
	for name, token := range map[string]string{
		"nothing":    "",
		"no token":   "abc",
		"an API key": "tl_abcdefgh_SECRETSECRETSECRETSECRETSE",
		"none":       part(map[string]any{"alg": "none"}) + "." + payload + ".",
		"None with a signature": part(map[string]any{"alg": "None", "kid": "k1"}) + "." + payload + "." +
			sig,
		"no algorithm":                       part(map[string]any{"kid": "k1"}) + "." + payload + "." + sig,
		"HS256 with the public key":          signed(t, jose.HS256, "rsa", public, i.claims(nil)),
		"HS256 with the public key, raw":     signed(t, jose.HS256, "rsa", der, i.claims(nil)),
		"RS512, which is not pinned":         signed(t, jose.RS512, "rsa", old, i.claims(nil)),
		"another's key under a known id":     signed(t, jose.ES256, "k1", key(t), i.claims(nil)),
		"another's key without an id":        signed(t, jose.ES256, "", key(t), i.claims(nil)),
		"a key that the token brings itself": bringsItsKey(t, i.claims(nil)),
		"no signature":                       head + "." + payload + ".",
		"other claims under the signature": head + "." + part(i.claims(map[string]any{"sub": "pipeline"})) + "." +
			sig,
		"a critical header that is unknown": part(map[string]any{"alg": "ES256", "kid": "k1", "crit": []string{"x"},
			"x": 1}) + "." + payload + "." + sig,
		"JSON serialization": `{"payload":"` + payload + `","protected":"` + head + `","signature":"` +
			sig + `","header":{"x":1}}`,
		"another issuer":          i.token("k1", map[string]any{"iss": "https://evil.example"}),
		"no issuer":               i.token("k1", map[string]any{"iss": nil}),
		"another audience":        i.token("k1", map[string]any{"aud": "turnledger-admin"}),
		"no audience":             i.token("k1", map[string]any{"aud": nil}),
		"no end":                  i.token("k1", map[string]any{"exp": nil}),
		"an end of no known form": i.token("k1", map[string]any{"exp": "tomorrow"}),
		"not begun": i.token("k1",
			map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()}),
		"a beginning of no known form": i.token("k1", map[string]any{"nbf": "x"}),
		"no subject":                   i.token("k1", map[string]any{"sub": nil}),
		"an identity that can be none": i.token("k1", map[string]any{"sub": ".."}),
		"an identity that is no text":  i.token("k1", map[string]any{"sub": 7}),
	} {
		caller, err := v.Authenticate(t.Context(), token)
		require.ErrorIs(t, err, access.ErrUnauthenticated, name)
		require.Zero(t, caller, name)
		if len(token) > 3 {
			require.NotContains(t, err.Error(), token, name)
		}
	}
	_, err := v.Authenticate(t.Context(), i.token("k1", map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()}))
	require.ErrorIs(t, err, access.ErrTokenEnded)
}

func split(t *testing.T, token string) (head, payload, sig string) {
	t.Helper()
	jws := must.Get(jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256}))(t)
	sig = base64.RawURLEncoding.EncodeToString(jws.Signatures[0].Signature)
	payload = base64.RawURLEncoding.EncodeToString(jws.UnsafePayloadWithoutVerification())
	return token[:len(token)-len(sig)-len(payload)-2], payload, sig
}

func bringsItsKey(t *testing.T, claims any) string {
	t.Helper()
	k := key(t)
	s := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k1"}},
		&jose.SignerOptions{EmbedJWK: true}))(t)
	raw := must.Get(json.Marshal(claims))(t)
	jws := must.Get(s.Sign(raw))(t)
	return must.Get(jws.CompactSerialize())(t)
}

// A new key is known when a token shows it, one that was taken back after the next look,
// and whoever makes up key ids does not have the issuer asked again and again.
func TestTheIssuersKeysChange(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "k1")
	first := i.token("k1", nil)
	v := i.verifier(func(c *jwt.Config) { c.Refresh, c.Pause = 20*time.Millisecond, time.Hour })
	require.ErrorIs(t, v.Ready(t.Context()), access.ErrNoKeys)
	_, err := v.Authenticate(t.Context(), first)
	require.NoError(t, err, "the first token has the keys asked for")
	require.NoError(t, v.Ready(t.Context()))
	for range 100 {
		_, err := v.Authenticate(t.Context(), signed(t, jose.ES256, "made-up", key(t), i.claims(nil)))
		require.ErrorIs(t, err, access.ErrUnauthenticated)
	}
	require.Equal(t, 1, i.asked())

	i.change(func() { i.keys["k2"] = key(t); delete(i.keys, "k1") })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	hang.Until(t, func() bool {
		_, old := v.Authenticate(t.Context(), first)
		_, next := v.Authenticate(t.Context(), i.token("k2", nil))
		return old != nil && next == nil
	})
	i.change(func() { i.down = true })
	asked := i.token("k2", nil)
	must.Get(v.Authenticate(t.Context(), asked))(t, "an issuer that does not answer changes nothing")
	stop()
	require.NoError(t, <-ended)

	quick := i.verifier(func(c *jwt.Config) { c.Pause = time.Nanosecond })
	must.Fail(quick.Authenticate(t.Context(), asked))(t, access.ErrNoKeys, "nobody can tell")
	require.NotErrorIs(t, err, access.ErrUnauthenticated)
	i.change(func() { i.down = false })
	must.Get(quick.Authenticate(t.Context(), asked))(t)
	i.change(func() { i.keys["k3"] = key(t) })
	_, err = quick.Authenticate(t.Context(), i.token("k3", nil))
	require.NoError(t, err, "a token that shows a new key has the keys asked for")
}

func TestConfigurationsThatWouldLetOthersIn(t *testing.T) {
	t.Parallel()
	for says, cfg := range map[string]jwt.Config{
		"must be a URL":       {URL: "login.example.org", Audience: "a"},
		"https":               {URL: "http://login.example.org", Audience: "a"},
		"audience is missing": {URL: "https://login.example.org"},
		`"HS256"`:             {URL: "https://login.example.org", Audience: "a", Algorithms: []string{"RS256", "HS256"}},
		`"none"`:              {URL: "https://login.example.org", Audience: "a", Algorithms: []string{"none"}},
		"leeway":              {URL: "https://login.example.org", Audience: "a", Leeway: time.Hour},
	} {
		require.ErrorContains(t, must.Err(jwt.New(cfg)), says)
	}
	// Its keys come in clear from elsewhere.
	i := newIssuer(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "http://" + r.Host, "jwks_uri": "http://keys.example.org/keys"})
	}))
	t.Cleanup(elsewhere.Close)
	v := i.verifier(func(c *jwt.Config) { c.URL = elsewhere.URL })
	must.Fail(v.Authenticate(t.Context(), signed(t, jose.ES256, "k", key(t), i.claims(nil))))(t, access.ErrNoKeys)
}
