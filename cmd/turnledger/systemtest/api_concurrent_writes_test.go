package systemtest_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// twoProcesses are two API processes on one NATS.
func twoProcesses(t testing.TB) [2]*stack.Process {
	t.Helper()
	nats := stack.FreeAddress(t)
	first := stack.Serve(t, stack.ServeNATS(nats), "--roles", "api,context")
	second := stack.Start(t, stack.JoinNATS(nats), "serve", "--roles", "api,context")
	return [2]*stack.Process{first, second}
}

// onBoth sends a request to each process at once and returns the two answers.
func onBoth(t testing.TB, ps [2]*stack.Process, method, path string,
	body func(i int) map[string]any) (status [2]int, out [2]map[string]any) {
	t.Helper()
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() {
			var err error
			if status[i], out[i], err = p.Call(t.Context(), method, path, body(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return status, out
}

// Two processes write to one session at once. Each caller is told what the log decided, never do both win, and a
// refused write shows in no read.
//
//conformance:i78
func TestTwoProcessesRaceOnOneSession(t *testing.T) {
	t.Parallel()
	ps := twoProcesses(t)
	for round := range 15 {
		id := fmt.Sprint("s", round)
		status, out := onBoth(t, ps, http.MethodPost, stack.SessionPath(id)+"/turns", func(i int) map[string]any {
			return map[string]any{"request_id": "r", "question_neutral": fmt.Sprint("question of ", i)}
		})
		require.ElementsMatch(t, []int{http.StatusCreated, http.StatusOK}, status[:], "start")
		require.Equal(t, out[0]["turn_id"], out[1]["turn_id"])
		require.Equal(t, out[0]["question_neutral"], out[1]["question_neutral"], "the first question stands")
		turn := out[0]["turn_id"].(string)

		status, out = onBoth(t, ps, http.MethodPost, stack.SessionPath(id)+"/turns/"+turn+"/finalize",
			func(i int) map[string]any {
				return map[string]any{"answer_neutral": fmt.Sprint("answer of ", i)}
			})
		require.Equal(t, [2]int{http.StatusOK, http.StatusOK}, status, "finalize")
		require.NotEqual(t, out[0]["duplicate"], out[1]["duplicate"])
		require.Equal(t, out[0]["answer_neutral"], out[1]["answer_neutral"], "the first answer stands")

		status, out = onBoth(t, ps, http.MethodPut, stack.SessionPath(id)+"/identity", func(i int) map[string]any {
			return map[string]any{"identity_id": fmt.Sprint("identity-", i)}
		})
		require.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict}, status[:], "link")
		winner := map[bool]string{true: "identity-0", false: "identity-1"}[status[0] == http.StatusOK]
		for _, p := range ps {
			require.Equal(t, winner, p.Get(t, stack.SessionPath(id))["identity_id"])
		}

		status, out = onBoth(t, ps, http.MethodPost, stack.SessionPath(id)+"/turns/"+turn+"/correct",
			func(i int) map[string]any {
				return map[string]any{"request_id": fmt.Sprint("c", i),
					"answer_neutral": fmt.Sprint("corrected by ", i)}
			})
		require.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict}, status[:], "correct")
		loser := map[bool]int{true: 1, false: 0}[status[0] == http.StatusOK]
		require.Equal(t, "turn_replaced", out[loser]["code"])
		require.Equal(t, map[string]any{"turn_id": out[1-loser]["turn_id"], "record_version": 2.0},
			out[loser]["current"])
		for _, p := range ps {
			require.Equal(t, []any{
				map[string]any{"role": "user", "content": out[1-loser]["question_neutral"]},
				map[string]any{"role": "assistant", "content": fmt.Sprint("corrected by ", 1-loser)},
			}, p.Context(t, id))
		}

		status, out = onBoth(t, ps, http.MethodPost, stack.SessionPath(id)+"/turns/"+turn+"/redact",
			func(int) map[string]any { return map[string]any{} })
		require.Equal(t, [2]int{http.StatusOK, http.StatusOK}, status, "redact")
		require.NotEqual(t, out[0]["duplicate"], out[1]["duplicate"])
		for _, p := range ps {
			require.Empty(t, p.Context(t, id))
		}
	}
}
