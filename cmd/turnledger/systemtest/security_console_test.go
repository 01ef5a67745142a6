package systemtest_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A sign-in at one process counts at all, since they share the key that seals it. The console is where the role context
// is, unless it was taken away.
func TestASignInToTheConsole(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, _ := createKey(t, file, "ops", "--scopes", "context:read,admin")
	nats := stack.FreeAddress(t)
	join := append(stack.JoinNATS(nats), "TURNLEDGER_AUTH=keys:"+file)
	first := stack.Serve(t, append(stack.ServeNATS(nats), "TURNLEDGER_AUTH=keys:"+file), "--roles", "api,context")
	second := stack.Start(t, join, "serve", "--roles", "context")
	off := stack.Start(t, append(join, "TURNLEDGER_CONSOLE=off"), "serve", "--roles", "context")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	status := func(p *stack.Process) int {
		resp, err := browser.Get(p.URL + "/console/keys")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusNotFound, status(off))
	require.Equal(t, http.StatusUnauthorized, status(second))
	resp, err := browser.PostForm(first.URL+"/console/signin", url.Values{"key": {key}, "to": {"/console/keys"}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, p := range []*stack.Process{first, second} { // cookies are by host, whatever the port
		require.Equal(t, http.StatusOK, status(p))
		require.NotContains(t, p.Log.String(), key)
	}
}
