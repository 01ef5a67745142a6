package wire_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Profiles are for this machine, and hold no command line, which may have keys in it.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, open := range []string{"0.0.0.0:0", "[::]:0", ":6060", "192.0.2.1:6060", "example.org:6060"} {
		_, err := wire.OpenProfiles(t.Context(), open)
		require.ErrorIs(t, err, wire.ErrProfilesOpen, open)
	}
	_, err := wire.OpenProfiles(t.Context(), "6060")
	require.ErrorContains(t, err, "host:port")

	server, err := wire.OpenProfiles(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	get := func(host, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr+path, nil)
		require.NoError(t, err)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(body)
	}
	status, body := get("", "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "TestProfiles")
	status, _ = get("", "/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = get("rebound.example.org", "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusForbidden, status)
}
