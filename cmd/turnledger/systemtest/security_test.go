package systemtest_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// createKey makes a key with the verb and returns its text and its prefix.
func createKey(t *testing.T, file string, args ...string) (text, prefix string) {
	t.Helper()
	code, out, errs := stack.Run(t, append([]string{"keys", "create", "--auth", "keys:" + file}, args...)...)
	require.Equal(t, stack.ExitDone, code, errs)
	text = strings.TrimSpace(out)
	prefix = text[:strings.LastIndex(text, "_")]
	require.Contains(t, errs, prefix)
	require.NotContains(t, errs, text)
	return text, prefix
}

// requireDay requires that a text names the day that is so long after now, or after began: it may be past midnight by
// now.
func requireDay(t *testing.T, text string, began time.Time, after time.Duration) {
	t.Helper()
	for _, from := range []time.Time{began, time.Now()} {
		if strings.Contains(text, from.Add(after).UTC().Format(time.DateOnly)) {
			return
		}
	}
	require.Contains(t, text, began.Add(after).UTC().Format(time.DateOnly))
}

func TestKeysVerbs(t *testing.T) {
	t.Parallel()
	began := time.Now()
	file := filepath.Join(t.TempDir(), "keys.json")
	auth := "keys:" + file
	code, _, errs := stack.Run(t, "keys", "list", "--auth", auth)
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "turnledger keys create")
	text, prefix := createKey(t, file, "pipeline", "--scopes", "turns:write,context:read", "--expires", "90d")
	code, out, _ := stack.Run(t, "keys", "create", "ada's phone", "--scopes", "context:read", "--identity", "ada",
		"--auth", auth, "--json")
	require.Equal(t, stack.ExitDone, code)
	var made struct{ Key, Prefix string }
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.True(t, strings.HasPrefix(made.Key, made.Prefix+"_"))

	code, out, _ = stack.Run(t, "keys", "list", "--auth", auth)
	require.Equal(t, stack.ExitDone, code)
	must.Contain(t, out, prefix, "pipeline", "turns:write,context:read", "ada's phone", "never", "active")
	requireDay(t, out, began, 90*24*time.Hour)
	code, out, errs = stack.Run(t, "keys", "rotate", prefix, "--auth", auth, "--keep", "2d")
	require.Equal(t, stack.ExitDone, code, errs)
	require.NotEqual(t, text, strings.TrimSpace(out))
	requireDay(t, errs, began, 48*time.Hour)
	require.Contains(t, errs, "turnledger keys revoke "+prefix)
	require.NotContains(t, errs, strings.TrimSpace(out))
	code, out, _ = stack.Run(t, "keys", "list", "--auth", auth)
	require.Equal(t, stack.ExitDone, code)
	require.Equal(t, 2, strings.Count(out, "pipeline "), out)
	code, _, errs = stack.Run(t, "keys", "revoke", prefix, "--auth", auth)
	require.Equal(t, stack.ExitDone, code, errs)
	code, listed, _ := stack.Run(t, "keys", "list", "--auth", auth, "--json")
	require.Equal(t, stack.ExitDone, code)
	require.Equal(t, 1, strings.Count(listed, `"state": "revoked"`))
	code, _, errs = stack.Run(t, "keys", "revoke", "tl_nobody00", "--auth", auth)
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "turnledger keys list")
	for _, secret := range []string{text, made.Key} {
		require.NotContains(t, out+listed, strings.TrimPrefix(secret, secret[:12]))
	}
}

// TestAServerOffLoopbackAsksForKeys runs the binary on all addresses, with its verbs as
// its clients. No key is printed by anything but the verb that made it.
func TestAServerOffLoopbackAsksForKeys(t *testing.T) {
	t.Parallel()
	dir := stack.DataDir(t)
	file := filepath.Join(dir, "secrets", "keys.json")
	_, port, err := net.SplitHostPort(stack.FreeAddress(t))
	require.NoError(t, err)
	everywhere := "0.0.0.0:" + port
	all, allPrefix := createKey(t, file, "pipeline", "--scopes", "turns:write,context:read,events:read")
	operator, _ := createKey(t, file, "operator", "--scopes", "admin")
	env := []string{"TURNLEDGER_AUTH=keys:" + file, "TURNLEDGER_VERBOSE=true"}
	p := stack.LaunchAt(t, everywhere, env, "serve", "--data-dir", dir)
	p.URL = "http://127.0.0.1:" + port
	p.WaitReady(t)
	var printed bytes.Buffer
	verb := func(key string, args ...string) (int, string) {
		t.Helper()
		path := stack.Binary(t)
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "TURNLEDGER_URL="+p.URL, "TURNLEDGER_KEY="+key, env[0])
		out, _ := cmd.CombinedOutput()
		printed.Write(out)
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, out := verb("", "import", "../../../docs/examples/questions.jsonl")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, out, "TURNLEDGER_KEY")
	for _, args := range [][]string{
		{"import", "../../../docs/examples/questions.jsonl"}, {"link", "s", "ada"}, {"history", "s"},
		{"context", "s", "m"}, {"replay"}, {"config"},
	} {
		code, out := verb(all, args...)
		require.Equal(t, stack.ExitDone, code, "%s: %s", args, out)
	}
	code, out = verb(all, "projections", "list")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, out, "forbidden: the key lacks the scope admin")
	code, out = verb(operator, "projections", "list")
	require.Equal(t, stack.ExitDone, code, out)
	code, _ = verb(operator, "replay")
	require.Equal(t, stack.ExitFailed, code)

	status := func(key string) int {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+stack.SessionPath("s"), nil))(t)
		req.Header.Set("Authorization", "Bearer "+key)
		resp := must.Get(http.DefaultClient.Do(req))(t)
		body := must.Get(io.ReadAll(resp.Body))(t)
		_ = resp.Body.Close()
		_, _ = fmt.Fprint(&printed, resp.Header, string(body))
		return resp.StatusCode
	}
	eventually := func(key string, want int) {
		t.Helper()
		hang.Until(t, func() bool { return status(key) == want })
	}
	// After a rotation both keys count until the former one is revoked; the server is not restarted.
	next, _ := createKey(t, file, "pipeline", "--scopes", "turns:write,context:read")
	eventually(next, http.StatusOK)
	require.Equal(t, http.StatusOK, status(all))
	code, errs := verb("", "keys", "revoke", allPrefix)
	require.Equal(t, stack.ExitDone, code, errs)
	eventually(all, http.StatusUnauthorized)
	require.Equal(t, http.StatusOK, status(next))
	phone, _ := createKey(t, file, "phone", "--scopes", "context:read", "--identity", "ada")
	eventually(phone, http.StatusOK)
	require.Equal(t, http.StatusForbidden, status(operator))
	p.Stop(t)
	for _, key := range []string{all, operator, next, phone} {
		require.NotContains(t, printed.String()+p.Log.String()+p.Out.String(), key[len("tl_")+8+1:])
	}
	p.WaitLog(t, "caller="+allPrefix)
}

// startIssuer serves an OpenID Connect issuer with one key, which is out while out is true; sign makes
// its tokens.
func startIssuer(t *testing.T) (url string, out *atomic.Bool, sign func(subject, scope string) string) {
	t.Helper()
	out = &atomic.Bool{}
	k := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
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
		raw := must.Get(json.Marshal(map[string]any{"iss": s.URL, "aud": "turnledger", "sub": subject, "scope": scope,
			"exp": time.Now().Add(time.Hour).Unix()}))(t)
		jws := must.Get(signer.Sign(raw))(t)
		return must.Get(jws.CompactSerialize())(t)
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

// request sends a request with a key.
func request(t testing.TB, p *stack.Process, key, method, path, body string) *http.Response {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL+path, bytes.NewBufferString(body)))(t)
	req.Header.Set("Authorization", "Bearer "+key)
	return must.Get(http.DefaultClient.Do(req))(t)
}

func requestStatus(t testing.TB, p *stack.Process, key, method, path, body string) int {
	t.Helper()
	resp := request(t, p, key, method, path, body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// requestBody sends a request with a key or a token and returns the status and the body.
func requestBody(t *testing.T, p *stack.Process, token, method, path, body string) (status int, answer string) {
	t.Helper()
	resp := request(t, p, token, method, path, body)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, string(must.Get(io.ReadAll(resp.Body))(t))
}

// revokedKeysEnd: a key that is revoked ends at every process that shares the file, for requests and for
// streams that were begun before.
func revokedKeysEnd(t *testing.T, file string, ps []*stack.Process) {
	t.Helper()
	key, prefix := createKey(t, file, "reader", "--scopes", "turns:write,context:read,events:read")
	stays, _ := createKey(t, file, "other", "--scopes", "turns:write")
	for _, p := range ps {
		hang.Until(t, func() bool {
			return requestStatus(t, p, key, http.MethodGet, stack.SessionPath("s"), "") == http.StatusOK
		})
	}
	ended := make(chan error, len(ps))
	for _, p := range ps {
		stream := request(t, p, key, http.MethodGet, "/v1/events?follow=true", "")
		require.Equal(t, http.StatusOK, stream.StatusCode)
		t.Cleanup(func() { _ = stream.Body.Close() })
		go func() {
			_, err := io.Copy(io.Discard, stream.Body)
			ended <- err
		}()
	}
	code, _, errs := stack.Run(t, "keys", "revoke", prefix, "--auth", "keys:"+file)
	require.Equal(t, stack.ExitDone, code, errs)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, p := range ps {
			assert.Equal(c, http.StatusUnauthorized,
				requestStatus(t, p, key, http.MethodGet, stack.SessionPath("s"), ""))
		}
	}, hang.Limit, 20*time.Millisecond)
	late := time.After(hang.Limit)
	for n := 0; n < len(ps); {
		select {
		case err := <-ended:
			require.NoError(t, err)
			n++
		case <-time.After(100 * time.Millisecond):
			request := fmt.Sprintf(`{"request_id":"%d","question_neutral":"q"}`, time.Now().UnixNano())
			require.Equal(t, http.StatusCreated,
				requestStatus(t, ps[0], stays, http.MethodPost, stack.SessionPath("s")+"/turns", request))
		case <-late:
			require.FailNow(t, "the streams go on")
		}
	}
	for _, p := range ps {
		p.WaitLog(t, "a reader of events may not read any more")
	}
}

// signIn: a sign-in at one process counts at all, since they share the key that seals it. The console is where the role
// context is, unless it was taken away.
func signIn(t *testing.T, file string, first, second, off *stack.Process) {
	t.Helper()
	key, _ := createKey(t, file, "ops", "--scopes", "context:read,admin")
	jar := must.Get(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	status := func(p *stack.Process) int {
		resp := must.Get(browser.Get(p.URL + "/console/keys"))(t)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusNotFound, status(off))
	require.Equal(t, http.StatusUnauthorized, status(second))
	for _, p := range []*stack.Process{first, second} {
		hang.Until(t, func() bool {
			return requestStatus(t, p, key, http.MethodGet, stack.SessionPath("s"), "") == http.StatusOK
		}, "the new key counts")
	}
	resp, err := browser.PostForm(first.URL+"/console/signin", url.Values{"key": {key}, "to": {"/console/keys"}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, p := range []*stack.Process{first, second} { // cookies are by host, whatever the port
		require.Equal(t, http.StatusOK, status(p))
		require.NotContains(t, p.Log.String(), key)
	}
}

// Secrets can be read from files. `config` prints no secret, wherever it came from.
func TestSecretsComeFromFilesAndAreNotShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := stack.Binary(t)
	file := func(name, text string) string {
		t.Helper()
		f := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(f, []byte(text), 0o600))
		return f
	}
	config := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, "config")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	secrets := map[string]string{
		"TURNLEDGER_POSTGRES_URL": "postgres://u:SECRET@db.example/t?sslmode=verify-full&sslrootcert=/ca.pem",
		"TURNLEDGER_REDIS_URL":    "rediss://:SECRET@redis.example:6379/0",
		"TURNLEDGER_NATS_URL":     "tls://u:SECRET@nats.example:4222,tls://u:SECRET@nats2.example:4222",
		"TURNLEDGER_MODEL_KEY":    "SECRET", "TURNLEDGER_MODEL_URL": "https://model.example/v1",
		"TURNLEDGER_REWRITER_KEY": "SECRET", "TURNLEDGER_MEMORY_KEY": "SECRET", "TURNLEDGER_SUMMARY_KEY": "SECRET",
		"TURNLEDGER_HASH_KEY":    "SECRET",
		"TURNLEDGER_CONSOLE_KEY": "SECRET", "TURNLEDGER_CONSOLE_OIDC_CLIENT_SECRET": "SECRET",
		"TURNLEDGER_MODEL_NAME":    "m",
		"TURNLEDGER_RECENT_SHADOW": "redis://:SECRET@shadow.example:6379",
	}
	var plain, filed []string
	for name, value := range secrets {
		plain = append(plain, name+"="+value)
		filed = append(filed, name+"_FILE="+file(name, value+"\n"))
	}
	one, err := config(plain...)
	require.NoError(t, err, one)
	other, err := config(filed...)
	require.NoError(t, err, other)
	require.Equal(t, one, other)
	require.NotContains(t, strings.ReplaceAll(one, "CLIENT_SECRET=", "="), "SECRET") // but for a setting's name
	must.Contain(t, one, "db.example", "TURNLEDGER_MODEL_KEY=(set)")
	for says, env := range map[string][]string{
		"are both set":       {"TURNLEDGER_MODEL_KEY=SECRET", "TURNLEDGER_MODEL_KEY_FILE=" + file("a", "SECRET")},
		"must hold one line": {"TURNLEDGER_MODEL_KEY_FILE=" + file("b", "SECRET\nSECRET")},
		"is empty":           {"TURNLEDGER_MODEL_KEY_FILE=" + file("c", "\n")},
		"no such file":       {"TURNLEDGER_MODEL_KEY_FILE=" + filepath.Join(dir, "none")},
	} {
		out, err := config(env...)
		require.Error(t, err)
		must.Contain(t, out, says, "TURNLEDGER_MODEL_KEY_FILE")
		require.NotContains(t, out, "SECRET")
	}
}
