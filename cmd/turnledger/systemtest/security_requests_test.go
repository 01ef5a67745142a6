package systemtest_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// request sends a request with a key.
func request(t testing.TB, p *stack.Process, key, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.URL+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	return resp
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
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}
