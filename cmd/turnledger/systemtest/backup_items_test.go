package systemtest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// callAPI makes a call that a key names, and returns the answer and its headers.
func callAPI(t *testing.T, p *stack.Process, method, path, body string) (out map[string]any, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "once")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	return out, resp.Header
}

// What clients of OpenAI's API hold names the same things after a restore: the ids of items and of responses, also of
// one whose turn was pruned so that its events have left the log, and the key of a call.
//
//conformance:o29
func TestABackupHoldsWhatNamesItems(t *testing.T) {
	t.Parallel()
	dir, env := stack.DataDir(t), append(stack.NewModel(t).Env(), "TURNLEDGER_PARTITIONS=2")
	serve := []string{"serve", "--data-dir", dir, "--roles", "api,context,recent,eraser,chat"}
	p := stack.Start(t, env, serve...)
	post := func(path string, body any) map[string]any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, path, body)
	}
	said := map[string]any{"items": []any{map[string]any{"role": "user", "content": "hello"},
		map[string]any{"role": "assistant", "content": "hello, too"}}}
	path := "/v1/conversations/" + post("/v1/conversations", said)["id"].(string)
	response := "/v1/responses/" + post("/v1/responses", map[string]any{"input": "and now?",
		"conversation": filepath.Base(path)})["id"].(string)
	named := func() any {
		t.Helper()
		out, _ := callAPI(t, p, http.MethodPost, path+"/items", `{"items":[{"role":"user","content":"once"}]}`)
		return out
	}
	once := named()
	items := func() []any { return p.Get(t, path+"/items?order=asc")["data"].([]any) }
	question := items()[2].(map[string]any)["id"].(string)
	_, h := callAPI(t, p, http.MethodDelete, path+"/items/"+question, "")
	before, answered := items(), p.Get(t, response)
	require.Len(t, before, 4)
	hang.Until(t, func() bool {
		return p.Get(t, "/v1/receipts/"+h.Get("Turnledger-Receipt"))["state"] == "complete"
	})

	backup := filepath.Join(t.TempDir(), "b")
	p.Done(t, "backup", backup)
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))
	p = stack.Start(t, env, serve...)
	p.Done(t, "restore", backup)
	p.WaitReady(t)
	for restarted := range 2 {
		if restarted > 0 {
			p.Kill(t) // what was restored is on disk
			p = stack.Start(t, env, serve...)
		}
		require.Equal(t, before, items())
		for _, i := range before {
			require.Equal(t, i, p.Get(t, path+"/items/"+i.(map[string]any)["id"].(string)))
		}
		require.Equal(t, once, named(), "the key of a call still names it")
		hang.Until(t, func() bool { // the eraser goes through the log again
			status, got, err := p.Call(t.Context(), http.MethodGet, response, nil)
			return err == nil && status == http.StatusOK && assert.ObjectsAreEqual(answered, got)
		})
	}
}
