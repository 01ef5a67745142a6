package systemtest_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// signIn: a sign-in at one process counts at all, since they share the key that seals it. The console is where the role
// context is, unless it was taken away.
func signIn(t *testing.T, file string, first, second, off *stack.Process) {
	t.Helper()
	key, _ := createKey(t, file, "ops", "--scopes", "context:read,admin")
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
