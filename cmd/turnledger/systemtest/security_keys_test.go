package systemtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
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
	for _, there := range []string{prefix, "pipeline", "turns:write,context:read", "ada's phone", "never", "active"} {
		require.Contains(t, out, there)
	}
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+stack.SessionPath("s"), nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
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
