package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// acknowledgements remembers what a server has acknowledged.
type acknowledgements struct {
	mu    sync.Mutex
	turns map[[2]string]string // session and turn id: status
}

func newAcknowledgements() *acknowledgements {
	return &acknowledgements{turns: map[[2]string]string{}}
}

func (a *acknowledgements) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.turns)
}

func (a *acknowledgements) set(session, turn, status string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns[[2]string{session, turn}] != "finalized" {
		a.turns[[2]string{session, turn}] = status
	}
}

// proxyTo returns the address of a proxy to a server that remembers each acknowledgement.
func (a *acknowledgements) proxyTo(t testing.TB, p *stack.Process) string {
	t.Helper()
	to, err := url.Parse(p.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = a.remember
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(keepSent(proxy))
	t.Cleanup(server.Close)
	return server.URL
}

// remember notes an answer once the whole of it is there.
func (a *acknowledgements) remember(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return nil
	}
	if resp.Request.URL.Path == "/v1/turns" {
		return a.rememberLines(resp.Request, body)
	}
	var turn struct {
		SessionID string `json:"session_id"`
		TurnID    string `json:"turn_id"`
	}
	if err := json.Unmarshal(body, &turn); err != nil {
		return err
	}
	switch path := resp.Request.URL.Path; {
	case strings.HasSuffix(path, "/turns"):
		a.set(turn.SessionID, turn.TurnID, "pending")
	case strings.HasSuffix(path, "/finalize"):
		a.set(turn.SessionID, turn.TurnID, "finalized")
	}
	return nil
}

// sentKey is where a request keeps the body that was sent with it.
type sentKey struct{}

// keepSent keeps the bodies of requests, which name the sessions that an answer to many turns does not.
func keepSent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sentKey{}, sent)))
	})
}

// rememberLines notes the answers to many turns.
func (a *acknowledgements) rememberLines(r *http.Request, body []byte) error {
	sent := json.NewDecoder(bytes.NewReader(r.Context().Value(sentKey{}).([]byte)))
	answers := json.NewDecoder(bytes.NewReader(body))
	for answers.More() {
		var asked struct {
			SessionID string           `json:"session_id"`
			Answer    *string          `json:"answer_neutral"`
			Messages  []map[string]any `json:"answer_messages"`
		}
		var told struct {
			Status    int    `json:"http_status"`
			TurnID    string `json:"turn_id"`
			Duplicate bool   `json:"duplicate"`
		}
		if err := errors.Join(sent.Decode(&asked), answers.Decode(&told)); err != nil {
			return err
		}
		switch {
		case told.Status/100 != 2:
		case told.Duplicate || asked.Answer == nil && asked.Messages == nil:
			a.set(asked.SessionID, told.TurnID, "pending")
		default:
			a.set(asked.SessionID, told.TurnID, "finalized")
		}
	}
	return nil
}

// startImport begins an import whose acknowledgements are remembered, until stop ends it.
func (a *acknowledgements) startImport(t testing.TB, p *stack.Process, files []string) (stop func()) {
	t.Helper()
	through := stack.Process{URL: a.proxyTo(t, p)}
	cmd := through.Command(t, append([]string{"import", "--parallel", "8"}, files...)...)
	require.NoError(t, cmd.Start())
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // broken off
	}
}

// check finds every acknowledged turn in the state that was acknowledged.
func (a *acknowledgements) check(t testing.TB, p *stack.Process, seed uint64) {
	t.Helper()
	sessions := map[string]map[string]string{}
	a.mu.Lock()
	for k, status := range a.turns {
		if sessions[k[0]] == nil {
			sessions[k[0]] = map[string]string{}
		}
		sessions[k[0]][k[1]] = status
	}
	a.mu.Unlock()
	for id, turns := range sessions {
		found := map[string]string{}
		path := stack.SessionPath(id) + "/turns?status=all&limit=10000"
		for _, x := range p.Get(t, path)["turns"].([]any) {
			turn := x.(map[string]any)
			require.NotContains(t, found, turn["turn_id"], "seed %d: a turn stands twice", seed)
			found[turn["turn_id"].(string)] = turn["status"].(string)
		}
		for turn, status := range turns {
			require.Contains(t, found, turn, "seed %d: an acknowledged turn is lost", seed)
			if status == "finalized" {
				require.Equal(t, "finalized", found[turn], "seed %d: an acknowledged answer is lost", seed)
			}
		}
	}
}
