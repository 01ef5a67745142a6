package systemtest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// open sends a request whose answer is a stream.
func open(ctx context.Context, t *testing.T, p *stack.Process, method, path, body string) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(ctx, method, p.URL+path, strings.NewReader(body)))(t)
	resp := must.Get(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// all reads a stream to its end.
func all(t *testing.T, resp *http.Response) string {
	t.Helper()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// readTo reads a stream until it has told a text.
func readTo(t *testing.T, resp *http.Response, text string) (read string) {
	t.Helper()
	b := make([]byte, 1)
	for !strings.HasSuffix(read, text) {
		_, err := io.ReadFull(resp.Body, b)
		require.NoError(t, err, read)
		read += string(b)
	}
	return read
}

// behind returns what stands behind the event of an id.
func behind(stream, id string) string {
	_, after, _ := strings.Cut(stream, "id: "+id+"\n")
	_, after, _ = strings.Cut(after, "\n\n")
	return after
}

// An answer that is being made can be watched from its beginning, or from a number on, and is stopped.
func TestRunningAnswers(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, model.Env(), "--roles", "api,context,recent,chat")
	const watching = "/v1/threads/w/messages/stream"
	t.Run("nothing runs", func(t *testing.T) {
		resp := open(t.Context(), t, p, "GET", "/v1/threads/none/messages/stream", "")
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
		require.Nil(t, p.Must(t, http.StatusOK, "POST", "/v1/threads/none/stop", map[string]any{})["turn_id"])
	})
	t.Run("watchers have what the caller has", func(t *testing.T) {
		release := model.Hold()
		first := open(t.Context(), t, p, "POST", watching, `{"content":"slowly: who is Donald Trump?"}`)
		told := readTo(t, first, "Donald \"}\n\n")
		second := open(t.Context(), t, p, "GET", watching, "")
		third := open(t.Context(), t, p, "GET", watching+"?from=2", "")
		foreign := open(t.Context(), t, p, "GET", watching+"?turn_id=00000000-0000-4000-8000-000000000000", "")
		require.Equal(t, http.StatusNoContent, foreign.StatusCode, "the answer of another turn")
		seen := readTo(t, second, "Donald \"}\n\n")
		require.Equal(t, told, seen)
		release()
		told += all(t, first)
		require.Equal(t, told, seen+all(t, second))
		require.Equal(t, behind(told, "2"), all(t, third))
		require.Contains(t, told, "event: done")
		require.Equal(t, http.StatusNoContent, open(t.Context(), t, p, "GET", watching, "").StatusCode)
	})
	t.Run("a stop keeps what is there", func(t *testing.T) {
		release := model.Hold()
		defer release()
		first := open(t.Context(), t, p, "POST", "/v1/threads/s/messages/stream",
			`{"content":"slowly: who is Donald Trump?"}`)
		readTo(t, first, "Donald \"}\n\n")
		other := p.Must(t, http.StatusOK, "POST", "/v1/threads/s/stop",
			map[string]any{"turn_id": "00000000-0000-4000-8000-000000000000"})
		require.Nil(t, other["turn_id"])
		require.NotNil(t, p.Must(t, http.StatusAccepted, "POST", "/v1/threads/s/stop", map[string]any{})["turn_id"])
		require.Contains(t, all(t, first), `"finish_reason":"stopped"`)
		turn := waitFinalized(t, p, "s", 1)[0].(map[string]any)
		require.Equal(t, "Donald ", turn["answer_neutral"])
		require.Equal(t, "stopped", turn["metadata"].(map[string]any)["finish_reason"])
	})
	t.Run("a hang-up stops a message that says so", func(t *testing.T) {
		release := model.Hold()
		defer release()
		const path, ask = "/v1/threads/h/messages/stream", `{"content":"slowly: who is Donald Trump?"}`
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		r := must.Get(http.NewRequestWithContext(ctx, "POST", p.URL+path, strings.NewReader(ask)))(t)
		r.Header.Set("X-Turnledger-On-Disconnect", "stop")
		resp := must.Get(http.DefaultClient.Do(r))(t)
		defer func() { _ = resp.Body.Close() }()
		readTo(t, resp, "Donald \"}\n\n")
		hangUp()
		require.Equal(t, "Donald ", waitFinalized(t, p, "h", 1)[0].(map[string]any)["answer_neutral"])
		r = must.Get(http.NewRequestWithContext(t.Context(), "POST", p.URL+path, strings.NewReader(ask)))(t)
		r.Header.Set("X-Turnledger-On-Disconnect", "never")
		refused := must.Get(http.DefaultClient.Do(r))(t)
		require.Contains(t, all(t, refused), "X-Turnledger-On-Disconnect")
		require.Equal(t, http.StatusUnprocessableEntity, refused.StatusCode)
	})
	t.Run("a redaction ends the watchers", func(t *testing.T) {
		release := model.Hold()
		defer release()
		first := open(t.Context(), t, p, "POST", "/v1/threads/r/messages/stream",
			`{"content":"slowly: who is Donald Trump?"}`)
		told := readTo(t, first, "Donald \"}\n\n")
		_, id, _ := strings.Cut(told, `"turn_id":"`)
		ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
		defer cancel()
		second := open(ctx, t, p, "GET", "/v1/threads/r/messages/stream", "")
		readTo(t, second, "event: delta\n")
		p.Must(t, http.StatusOK, "POST", stack.SessionPath("r")+"/turns/"+id[:36]+"/redact", map[string]any{})
		require.Contains(t, all(t, second), "turn_redacted")
	})
}
