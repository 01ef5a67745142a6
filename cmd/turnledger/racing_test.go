package main

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoProcesses are two API processes on one NATS.
func twoProcesses(t testing.TB) [2]*process {
	t.Helper()
	nats := freeAddress(t)
	first := start(t, []string{"TURNLEDGER_NATS_LISTEN=" + nats, "TURNLEDGER_SYNC=always"}, "serve", "--data-dir", dataDir(t), "--roles", "api,context")
	second := start(t, []string{"TURNLEDGER_NATS_URL=nats://" + nats, "TURNLEDGER_NATS_LISTEN="}, "serve", "--roles", "api,context")
	return [2]*process{first, second}
}

// both sends a request to each process at once and gives the two answers.
func both(t testing.TB, ps [2]*process, method, path string, body func(i int) map[string]any) (status [2]int, out [2]map[string]any) {
	t.Helper()
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() {
			var err error
			if status[i], out[i], err = p.call(t.Context(), method, path, body(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return status, out
}

// Two processes race on one session: each caller gets the verdict that the log
// gives, no two both win, and a refused write leaves nothing that is shown.
func TestTwoProcessesRaceOnOneSession(t *testing.T) {
	t.Parallel()
	ps := twoProcesses(t)
	for round := range 15 {
		id := fmt.Sprint("s", round)
		status, out := both(t, ps, http.MethodPost, session(id)+"/turns", func(i int) map[string]any {
			return map[string]any{"request_id": "r", "question_neutral": fmt.Sprint("question of ", i)}
		})
		require.ElementsMatch(t, []int{http.StatusCreated, http.StatusOK}, status[:], "start")
		require.Equal(t, out[0]["turn_id"], out[1]["turn_id"])
		require.Equal(t, out[0]["question_neutral"], out[1]["question_neutral"], "the first question stands")
		turn := out[0]["turn_id"].(string)

		status, out = both(t, ps, http.MethodPost, session(id)+"/turns/"+turn+"/finalize", func(i int) map[string]any {
			return map[string]any{"answer_neutral": fmt.Sprint("answer of ", i)}
		})
		require.Equal(t, [2]int{http.StatusOK, http.StatusOK}, status, "finalize")
		require.NotEqual(t, out[0]["duplicate"], out[1]["duplicate"])
		require.Equal(t, out[0]["answer_neutral"], out[1]["answer_neutral"], "the first answer stands")

		status, out = both(t, ps, http.MethodPut, session(id)+"/identity", func(i int) map[string]any {
			return map[string]any{"identity_id": fmt.Sprint("identity-", i)}
		})
		require.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict}, status[:], "link")
		winner := map[bool]string{true: "identity-0", false: "identity-1"}[status[0] == http.StatusOK]
		for _, p := range ps {
			require.Equal(t, winner, p.must(t, http.StatusOK, http.MethodGet, session(id), nil)["identity_id"])
		}

		status, out = both(t, ps, http.MethodPost, session(id)+"/turns/"+turn+"/correct", func(i int) map[string]any {
			return map[string]any{"request_id": fmt.Sprint("c", i), "answer_neutral": fmt.Sprint("corrected by ", i)}
		})
		require.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict}, status[:], "correct")
		loser := map[bool]int{true: 1, false: 0}[status[0] == http.StatusOK]
		require.Equal(t, "turn_replaced", out[loser]["code"])
		require.Equal(t, map[string]any{"turn_id": out[1-loser]["turn_id"], "record_version": 2.0}, out[loser]["current"])
		for _, p := range ps {
			require.Equal(t, []any{
				map[string]any{"role": "user", "content": out[1-loser]["question_neutral"]},
				map[string]any{"role": "assistant", "content": fmt.Sprint("corrected by ", 1-loser)},
			}, p.context(t, id))
		}

		status, out = both(t, ps, http.MethodPost, session(id)+"/turns/"+turn+"/redact", func(int) map[string]any { return map[string]any{} })
		require.Equal(t, [2]int{http.StatusOK, http.StatusOK}, status, "redact")
		require.NotEqual(t, out[0]["duplicate"], out[1]["duplicate"])
		for _, p := range ps {
			require.Empty(t, p.context(t, id))
		}
	}
}

// 2 processes with 100 starts each at once on one session are 200 turns, and the
// same request 50 times at once is one.
func TestTwoProcessesStartOnOneSession(t *testing.T) {
	t.Parallel()
	ps := twoProcesses(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			status, _, err := ps[i%2].call(t.Context(), http.MethodPost, session("many")+"/turns",
				map[string]any{"request_id": fmt.Sprint("r", i), "question_neutral": "q"})
			if err != nil || status != http.StatusCreated {
				t.Error(status, err)
			}
		})
	}
	for i := range 50 {
		wg.Go(func() {
			status, _, err := ps[i%2].call(t.Context(), http.MethodPost, session("one")+"/turns", map[string]any{"request_id": "r", "question_neutral": "q"})
			if err != nil || status != http.StatusCreated && status != http.StatusOK {
				t.Error(status, err)
			}
		})
	}
	wg.Wait()
	for _, p := range ps {
		require.EqualValues(t, 200, p.must(t, http.StatusOK, http.MethodGet, session("many"), nil)["turns"])
		require.EqualValues(t, 1, p.must(t, http.StatusOK, http.MethodGet, session("one"), nil)["turns"])
	}
}
