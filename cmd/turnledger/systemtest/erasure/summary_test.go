package erasure_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/services/chat/modeltest"
)

// A context asked for after a redaction was acknowledged has no summary of the turn, also where another process
// redacted and the reader is kept busy meanwhile.
func TestNoSummaryIsShownAfterARedaction(t *testing.T) {
	t.Parallel()
	rounds := 10
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 1000
	}
	nats := stack.FreeAddress(t)
	reads := stack.Start(t, stack.ServeNATS(nats), "serve", "--roles", "api,context,eraser",
		"--data-dir", stack.DataDir(t))
	writes := stack.Start(t, stack.JoinNATS(nats), "serve", "--roles", "api")
	for n := range rounds {
		session := fmt.Sprint("s-", n)
		path := stack.SessionPath(session)
		turn := writes.RecordTurn(t, session, "r1", "question", "answer")
		writes.RecordTurn(t, session, "r2", "question", "answer")
		body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
		writes.Must(t, http.StatusCreated, http.MethodPost, path+"/summaries",
			map[string]any{"request_id": "m", "through_turn_id": turn, "summary_neutral": "SECRET"})
		require.NotNil(t, reads.BuildContext(t, session, body)["summary"], "it stands at first")

		var redacted atomic.Bool
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for after := false; !after; {
					after = redacted.Load()
					status, got, err := reads.Call(context.Background(), http.MethodPost, path+"/context", body)
					if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status) {
						return
					}
					if after {
						assert.Nil(t, got["summary"])
						assert.NotContains(t, fmt.Sprint(got["messages"]), "SECRET")
					}
				}
			})
		}
		writes.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+turn+"/redact", nil)
		redacted.Store(true)
		wg.Wait()
	}
}

// A model summarises each session once, however many processes ask it and though one is killed meanwhile. The
// summary is shown no more after a redaction.
func TestAModelSummarisesEachSessionOnce(t *testing.T) {
	t.Parallel()
	const sessions = 6
	model := modeltest.New(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "SECRET of the model"} })
	asks := []string{"TURNLEDGER_SUMMARY_URL=" + model.URL + "/v1", "TURNLEDGER_SUMMARY_NAME=small"}
	nats, dir := stack.FreeAddress(t), stack.DataDir(t)
	first := stack.Start(t, append(stack.ServeNATS(nats), asks...), "serve", "--roles", "api,context,eraser",
		"--data-dir", dir)
	var others []*stack.Process
	for range 3 {
		others = append(others, stack.Start(t, append(stack.JoinNATS(nats), asks...), "serve", "--roles", "api"))
	}
	var turn string
	for i := range 20 {
		for s := range sessions {
			id := others[(i+s)%len(others)].RecordTurn(t, fmt.Sprint("s-", s), fmt.Sprint("r", i), "question", "answer")
			if s == 0 && i == 0 {
				turn = id
			}
		}
	}
	others[0].Kill(t)
	listed := func(session string) []any {
		return first.Get(t, stack.SessionPath(session)+"/summaries")["summaries"].([]any)
	}
	for s := range sessions {
		require.Eventually(t, func() bool { return len(listed(fmt.Sprint("s-", s))) > 0 }, time.Minute,
			50*time.Millisecond)
		got := listed(fmt.Sprint("s-", s))
		require.Len(t, got, 1)
		require.InDelta(t, 10, got[0].(map[string]any)["turns"], 0)
	}
	body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
	require.NotNil(t, first.BuildContext(t, "s-0", body)["summary"])
	first.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s-0")+"/turns/"+turn+"/redact", nil)
	require.Empty(t, listed("s-0"))
	require.Nil(t, first.BuildContext(t, "s-0", body)["summary"])
}
