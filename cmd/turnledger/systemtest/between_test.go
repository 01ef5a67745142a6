package systemtest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Two processes on one NATS watch and stop each other's answers, and know when the other was killed.
func TestAnswersOfOtherProcesses(t *testing.T) {
	t.Parallel()
	address, model := stack.FreeAddress(t), stack.NewModel(t)
	env := append(model.Env(), "TURNLEDGER_STREAM_KEY="+strings.Repeat("k", 32))
	stack.Start(t, append(stack.ServeNATS(address), env...), "serve", "--data-dir", stack.DataDir(t), "--roles", "api")
	join := func() *stack.Process {
		return stack.Start(t, append(stack.JoinNATS(address), env...), "serve", "--roles", "api,context,chat")
	}
	a, b := join(), join()
	const thread, ask = "/v1/threads/w/messages/stream", `{"content":"slowly: who is Donald Trump?"}`
	release := model.Hold()
	first := open(t.Context(), t, a, "POST", thread, ask)
	told := readTo(t, first, "Donald \"}\n\n")
	second, third := open(t.Context(), t, b, "GET", thread, ""), open(t.Context(), t, b, "GET", thread+"?from=1", "")
	seen := readTo(t, second, "Donald \"}\n\n")
	require.Equal(t, told, seen)
	release()
	told += all(t, first)
	require.Equal(t, told, seen+all(t, second))
	require.Equal(t, behind(told, "1"), all(t, third))
	require.Contains(t, told, "event: done")

	model.Hold()
	first = open(t.Context(), t, a, "POST", thread, ask)
	readTo(t, first, "Donald \"}\n\n")
	require.NotNil(t, b.Must(t, http.StatusAccepted, "POST", "/v1/threads/w/stop", map[string]any{})["turn_id"])
	require.Contains(t, all(t, first), `"finish_reason":"stopped"`)

	open(t.Context(), t, a, "POST", thread, ask)
	killed := open(t.Context(), t, b, "GET", thread, "")
	readTo(t, killed, "Donald \"}\n\n")
	response := a.Must(t, http.StatusOK, "POST", "/v1/responses",
		map[string]any{"input": "slowly: who is Donald Trump?", "background": true})["id"].(string)
	watched := open(t.Context(), t, b, "GET", "/v1/responses/"+response+"?stream=true", "")
	readTo(t, watched, "response.output_text.delta\n")
	a.Kill(t)
	at := time.Now()
	require.Contains(t, all(t, killed), "event: error\n")
	require.Contains(t, all(t, watched), "event: response.failed\n")
	require.Less(t, time.Since(at), 5*time.Second)
	require.Equal(t, http.StatusNoContent, open(t.Context(), t, b, "GET", thread, "").StatusCode)
	require.Equal(t, "failed", b.Get(t, "/v1/responses/"+response)["status"])
}
