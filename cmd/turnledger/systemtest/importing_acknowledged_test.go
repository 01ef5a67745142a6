package systemtest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// acknowledgements are the turns that a server has acknowledged to imports, by their sessions; whole ones are true.
type acknowledgements struct {
	mu    sync.Mutex
	n     int
	turns map[string]map[string]bool
}

func (a *acknowledgements) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// proxyTo returns the address of a proxy to a server that remembers each acknowledgement.
func (a *acknowledgements) proxyTo(t testing.TB, p *stack.Process) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return // the import was broken off
		}
		ask, err := http.NewRequestWithContext(r.Context(), r.Method, p.URL+r.URL.RequestURI(), bytes.NewReader(sent))
		assert.NoError(t, err)
		ask.Header = r.Header
		resp, err := http.DefaultClient.Do(ask)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if r.URL.Path == "/v1/turns" && resp.StatusCode == http.StatusOK {
			assert.NoError(t, a.remember(sent, answer))
		}
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// remember notes the answers to many turns. Those name no sessions, which were sent.
func (a *acknowledgements) remember(sent, answer []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	asks := json.NewDecoder(bytes.NewReader(sent))
	for answers := json.NewDecoder(bytes.NewReader(answer)); answers.More(); {
		var asked struct {
			SessionID string           `json:"session_id"`
			Answer    *string          `json:"answer_neutral"`
			Messages  []map[string]any `json:"answer_messages"`
		}
		var told struct {
			Status int    `json:"http_status"`
			TurnID string `json:"turn_id"`
		}
		if err := asks.Decode(&asked); err != nil {
			return err
		}
		if err := answers.Decode(&told); err != nil {
			return err
		}
		if told.Status != http.StatusCreated {
			continue
		}
		if a.turns[asked.SessionID] == nil {
			a.turns[asked.SessionID] = map[string]bool{}
		}
		a.turns[asked.SessionID][told.TurnID] = asked.Answer != nil || asked.Messages != nil
		a.n++
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

// check finds every acknowledged turn as it was acknowledged. A turn that was sent whole is never in two pieces, and
// stands once, whether it was acknowledged or not.
func (a *acknowledgements) check(t testing.TB, p *stack.Process, seed uint64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, turns := range a.turns {
		found := map[string]string{}
		path := stack.SessionPath(id) + "/turns?status=all&limit=10000"
		for _, x := range p.Get(t, path)["turns"].([]any) {
			turn := x.(map[string]any)
			require.NotContains(t, found, turn["turn_id"], "seed %d: a turn stands twice", seed)
			found[turn["turn_id"].(string)] = turn["status"].(string)
			if !stack.Long() { // the real conversations may end with a question
				require.Equal(t, "finalized", turn["status"], "seed %d: a whole turn is in two pieces", seed)
			}
		}
		for turn, whole := range turns {
			require.Contains(t, found, turn, "seed %d: an acknowledged turn is lost", seed)
			if whole {
				require.Equal(t, "finalized", found[turn], "seed %d: an acknowledged answer is lost", seed)
			}
		}
	}
}
