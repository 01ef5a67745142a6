package stack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
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
	return strings.TrimSpace(string(must.Get(io.ReadAll(resp.Body))(t)))
}

// Exchanges returns what a context must show after n turns: the user's and the assistant's messages.
func Exchanges(n int) (out []any) {
	for i := range n {
		out = append(out,
			map[string]any{"role": "user", "content": fmt.Sprint("question ", i)},
			map[string]any{"role": "assistant", "content": fmt.Sprint("answer ", i)})
	}
	return out
}

// RecordExchange records turn i of a session, and requires that the next context has it.
func (p *Process) RecordExchange(t testing.TB, id string, i int) {
	t.Helper()
	p.RecordTurn(t, id, fmt.Sprint("r", i), fmt.Sprint("question ", i), fmt.Sprint("answer ", i))
	require.Equal(t, Exchanges(i+1), p.Context(t, id))
}

// Questions returns the questions of the first n such turns.
func Questions(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("question ", i))
	}
	return out
}

// WaitNoLag waits until no view lags, whichever process feeds it.
func (p *Process) WaitNoLag(t testing.TB) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, x := range p.Get(t, "/v1/projections")["projections"].([]any) {
			assert.InDelta(c, 0, x.(map[string]any)["lag_events"], 0, "%v", x)
		}
	}, hang.Limit, 20*time.Millisecond)
}

// WaitCaughtUp waits until the process has fed all partitions of the named projections up to the log's head.
func (p *Process) WaitCaughtUp(t testing.TB, names ...string) {
	t.Helper()
	hang.Until(t, func() bool {
		status, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
		if err != nil || status != http.StatusOK {
			return false
		}
		ready := map[string]bool{}
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			follows := s["state"] == "live" || s["state"] == "outdated"
			name, is := s["name"].(string), s["position"] == s["head"] && follows
			earlier, listed := ready[name] // of another partition
			ready[name] = is && (earlier || !listed)
		}
		for _, n := range names {
			if !ready[n] {
				return false
			}
		}
		return true
	}, "%v do not catch up: %s", names, p.Log)
}

// AuditedQuestions returns the questions of an identity in the audit tables. It repeats the call while the answer is
// 503, as it is until PostgreSQL is back.
func (p *Process) AuditedQuestions(t testing.TB, identity string) (out []string) {
	t.Helper()
	var page map[string]any
	hang.Until(t, func() bool {
		status, answer, err := p.Call(t.Context(), http.MethodGet, "/v1/identities/"+identity+"/turns?limit=1000", nil)
		page = answer
		return err == nil && status == http.StatusOK
	})
	for _, x := range page["turns"].([]any) {
		out = append(out, x.(map[string]any)["question_neutral"].(string))
	}
	return out
}

// Backup is a backup of the sessions s0, s1, … of two turns each, and of the session "gone", which was erased after the
// backup.
type Backup struct {
	Dir      string
	Erasures string // the file of the later erasures
}

// BackupSessions is the number of sessions s0, s1, … of a Backup.
const BackupSessions = 5

// TakeBackup records sessions at a server of its own, which is started with args, and backs them up.
func TakeBackup(t testing.TB, args ...string) Backup {
	t.Helper()
	p := Serve(t, nil, args...)
	for i := range BackupSessions {
		p.RecordExchange(t, fmt.Sprint("s", i), 0)
		p.RecordExchange(t, fmt.Sprint("s", i), 1)
	}
	p.RecordExchange(t, "gone", 0)
	for i := range 4 { // so that a copy has several parts
		p.RecordTurn(t, "long", fmt.Sprint("r", i), "question", unpackable(100_000))
	}
	b := Backup{filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "erasures.jsonl")}
	for _, args := range [][]string{
		{"backup", b.Dir}, {"erase", "gone", "--wait"},
		{"replay", "--type", "turnledger.session.erased.v1", "-o", b.Erasures},
	} {
		code, _, errs := p.Run(t, args...)
		require.Equal(t, ExitDone, code, errs)
	}
	return b
}

// unpackable returns a text that compression shortens by a quarter at most.
func unpackable(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()
}
