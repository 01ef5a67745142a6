package stack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// Call sends a JSON body and returns the status and the answer.
func (p *Process) Call(ctx context.Context, method, path string, body any) (int, map[string]any, error) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, r)
	if err != nil {
		return 0, nil, err
	}
	resp, err := cmp.Or(p.Client, http.DefaultClient).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	var out map[string]any
	return resp.StatusCode, out, errors.Join(err, json.Unmarshal(raw, &out))
}

// NewCaller returns a caller of a process that has connections of its own, and may keep them.
func NewCaller(url string, keepAlive bool) *Process {
	transport := &http.Transport{DisableKeepAlives: !keepAlive}
	return &Process{URL: url, Client: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// ReadContext returns the status and the messages of a session's context but the current one.
func (p *Process) ReadContext(ctx context.Context, id string) (int, []any, error) {
	body := map[string]any{"message": "now", "include_pending": true}
	status, out, err := p.Call(ctx, http.MethodPost, SessionPath(id)+"/context", body)
	messages, _ := out["messages"].([]any)
	return status, messages[:max(0, len(messages)-1)], err
}

// Must makes a call and requires a status.
func (p *Process) Must(t testing.TB, status int, method, path string, body any) map[string]any {
	t.Helper()
	got, out := must.Two(p.Call(t.Context(), method, path, body))(t)
	require.Equal(t, status, got, "%s %s: %v", method, path, out)
	return out
}

// Get reads a path and requires 200.
func (p *Process) Get(t testing.TB, path string) map[string]any {
	t.Helper()
	return p.Must(t, http.StatusOK, http.MethodGet, path, nil)
}

// SessionPath returns the path of a session.
func SessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

// RecordTurn records a question and its answer and returns the turn's id.
func (p *Process) RecordTurn(t testing.TB, id, request, question, answer string) string {
	t.Helper()
	out := p.Must(t, http.StatusCreated, http.MethodPost, SessionPath(id)+"/turns",
		map[string]any{"request_id": request, "question_neutral": question})
	turn := out["turn_id"].(string)
	p.Must(t, http.StatusOK, http.MethodPost, SessionPath(id)+"/turns/"+turn+"/finalize",
		map[string]any{"answer_neutral": answer})
	return turn
}

// LinkIdentity links a session to an identity.
func (p *Process) LinkIdentity(t testing.TB, id, identity string) {
	t.Helper()
	body := map[string]any{"identity_id": identity}
	p.Must(t, http.StatusOK, http.MethodPut, SessionPath(id)+"/identity", body)
}

// BuildContext asks for a session's context and returns the answer.
func (p *Process) BuildContext(t testing.TB, id string, body map[string]any) map[string]any {
	t.Helper()
	return p.Must(t, http.StatusOK, http.MethodPost, SessionPath(id)+"/context", body)
}

// Context returns all messages of a session's context but the current one.
func (p *Process) Context(t testing.TB, id string) []any {
	t.Helper()
	body := map[string]any{"message": "now", "include_pending": true, "max_messages": 100_000}
	messages := p.BuildContext(t, id, body)["messages"].([]any)
	require.Equal(t, map[string]any{"role": "user", "content": "now"}, messages[len(messages)-1])
	return messages[:len(messages)-1]
}

// MessageLines returns messages as "role: content".
func MessageLines(messages any) (out []string) {
	for _, m := range messages.([]any) {
		m := m.(map[string]any)
		out = append(out, fmt.Sprint(m["role"], ": ", m["content"]))
	}
	return out
}

// TurnCount returns how many turns a session has.
func (p *Process) TurnCount(t testing.TB, id string) float64 {
	t.Helper()
	return p.Get(t, SessionPath(id))["turns"].(float64)
}

// Ask sends a message to a thread and returns the model's answer.
func (p *Process) Ask(t testing.TB, thread string, body map[string]any) map[string]any {
	t.Helper()
	return p.Must(t, http.StatusOK, http.MethodPost, "/v1/threads/"+thread+"/messages", body)
}

// Content returns the body of a message with nothing but a text.
func Content(text string) map[string]any { return map[string]any{"content": text} }

// Metrics returns the process's metrics in the text form.
func (p *Process) Metrics(t testing.TB) string {
	t.Helper()
	resp := must.Get(http.Get(p.URL + "/metrics"))(t)
	defer func() { _ = resp.Body.Close() }()
	body := must.Get(io.ReadAll(resp.Body))(t)
	return strings.TrimSpace(string(body))
}
