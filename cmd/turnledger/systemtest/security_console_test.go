package systemtest_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// A sign-in at one process counts at all, since they share the key that seals it, and ends at all when the API key is
// revoked. The console is where the role context is, unless it was taken away.
func TestASignInToTheConsole(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, prefix := createKey(t, file, "ops", "--scopes", "context:read,admin")
	nats := stack.FreeAddress(t)
	auth := "TURNLEDGER_AUTH=keys:" + file
	first := stack.Serve(t, append(stack.ServeNATS(nats), auth), "--roles", "api,context")
	join := append(stack.JoinNATS(nats), auth)
	second := stack.Start(t, join, "serve", "--roles", "context")
	off := stack.Start(t, append(join, "TURNLEDGER_CONSOLE=off"), "serve", "--roles", "context")
	writer := stack.Start(t, join, "serve", "--roles", "api")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	open := func(p *stack.Process, path string) (int, string) {
		resp, err := browser.Get(p.URL + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode, string(body)
	}
	for _, without := range []*stack.Process{off, writer} {
		status, _ := open(without, "/console/")
		require.Equal(t, http.StatusNotFound, status)
	}
	status, _ := open(first, "/console/keys")
	require.Equal(t, http.StatusUnauthorized, status)
	resp, err := browser.PostForm(first.URL+"/console/signin", url.Values{"key": {key}, "to": {"/console/keys"}})
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "/console/keys", resp.Request.URL.Path)
	for _, p := range []*stack.Process{first, second} { // cookies are by host, whatever the port
		status, body := open(p, "/console/keys")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, prefix)
		require.NotContains(t, body, key)
		require.NotContains(t, p.Log.String(), key)
	}
	c, err := client.New(client.Config{URL: first.URL, Key: key})
	require.NoError(t, err)
	defer c.Close()
	listed, err := c.Keys(t.Context())
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, prefix, listed[0].Prefix)
	require.Equal(t, "active", listed[0].State)
	code, _, errs := stack.Run(t, "keys", "revoke", prefix, "--auth", "keys:"+file)
	require.Equal(t, stack.ExitDone, code, errs)
	u, err := url.Parse(first.URL)
	require.NoError(t, err)
	kept := jar.Cookies(u)
	require.Len(t, kept, 1)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, p := range []*stack.Process{first, second} {
			jar.SetCookies(u, kept) // a refusal takes the cookie away
			status, _ := open(p, "/console/keys")
			assert.Equal(c, http.StatusUnauthorized, status)
		}
	}, revocation, 20*time.Millisecond)
}
