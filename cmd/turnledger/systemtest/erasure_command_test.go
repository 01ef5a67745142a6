package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestErasureOverTheCommandLine(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	p.RecordTurn(t, "forgotten", "r1", "question", "answer")
	errs := p.Fails(t, "erase", "nobody")
	require.Contains(t, errs, "session_not_found")
	errs = p.Fails(t, "erase", "--receipt", "0-0-x")
	require.Contains(t, errs, "not_found")
	out := p.Done(t, "erase", "forgotten", "--reason", "asked to", "--by", "ops")
	id := strings.Fields(out)[1]
	out = p.Done(t, "erase", "--receipt", id, "--wait", "--json")
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, "complete", r["state"])
	require.Equal(t, "forgotten", r["session_id"])
	out = p.Done(t, "retention", "--dry-run")
	require.Equal(t, "would go: 0 anonymous sessions with 0 events, 0 turns of 0 linked sessions\n", out)
}

// firstTries is how often a verb asks a server that has not answered yet.
const firstTries = 8

// `erase --wait` goes on when the server is restarted meanwhile.
func TestEraseWaitOutlastsARestart(t *testing.T) {
	t.Parallel()
	asked := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := "complete"
		switch n := asked.Add(1); {
		case n == 1:
			state = "running"
		case n < firstTries+3:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"receipt_id":"0-1-a","kind":"session","session_id":"s","state":%q}`, state)
	}))
	t.Cleanup(server.Close)
	code, out, errs := stack.Run(t, "erase", "--receipt", "0-1-a", "--wait", "--url", server.URL)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "session s, complete")
}
