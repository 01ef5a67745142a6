package systemtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// stream opens a stream and returns its events; it ends with ctx.
func stream(ctx context.Context, p *stack.Process, t testing.TB, thread string, body map[string]any) <-chan [2]string {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/v1/threads/"+thread+"/messages/stream",
		bytes.NewReader(raw))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	out := make(chan [2]string, 100)
	go func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		name := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if after, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = after
			}
			if after, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				out <- [2]string{name, after}
			}
		}
	}()
	return out
}

// waitFinalized waits until a session has so many answers.
func waitFinalized(t testing.TB, p *stack.Process, id string, n int) []any {
	t.Helper()
	var turns []any
	hang.Until(t, func() bool {
		turns = p.Get(t, stack.SessionPath(id)+"/turns")["turns"].([]any)
		return len(turns) == n
	})
	return turns
}
