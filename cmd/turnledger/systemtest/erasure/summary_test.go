package erasure_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
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
