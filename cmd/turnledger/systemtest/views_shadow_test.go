package systemtest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Reads are compared with the second view and answered from the first. When the second view is emptied, reads go on.
//
//conformance:i82
func TestASecondRecentViewIsComparedAndNeverAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_RECENT_SHADOW=" + redis.URL()}, "--roles", "api,context,recent")
	p.RecordTurn(t, "s", "r1", "a secret question", "an answer")
	metric := func(result string) bool {
		require.Len(t, p.Context(t, "s"), 2)
		return strings.Contains(p.Metrics(t), `turnledger_recent_shadow_reads_total{result="`+result+`"}`)
	}
	hang.Until(t, func() bool { return metric("same") })
	require.NotContains(t, p.Metrics(t), `result="different"`)
	redis.Restart(redistest.Empty)
	hang.Until(t, func() bool { return metric("behind") || metric("failed") })
	require.NotContains(t, p.Log.String(), "secret")
}

// A process that only erases has no first view to compare, and still waits for the second before it calls an erasure
// complete.
func TestAnEraserAloneWaitsForTheSecondRecentView(t *testing.T) {
	t.Parallel()
	redis, nats := redistest.Start(t), stack.FreeAddress(t)
	shadow := "TURNLEDGER_RECENT_SHADOW=" + redis.URL()
	p := stack.Serve(t, append(stack.ServeNATS(nats), shadow), "--roles", "api,context,recent")
	eraser := stack.Serve(t, append(stack.JoinNATS(nats), shadow), "--roles", "eraser,api")
	p.RecordTurn(t, "s", "r1", "a question", "an answer")
	p.WaitCaughtUp(t, "recent-shadow")
	redis.Stop()
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("s"), nil)["receipt_id"].(string)
	states := func() map[any]any {
		out := map[any]any{}
		for _, x := range eraser.Get(t, "/v1/receipts/"+id)["places"].([]any) {
			out[x.(map[string]any)["place"]] = x.(map[string]any)["state"]
		}
		return out
	}
	hang.Until(t, func() bool { return states()["log"] == "done" })
	require.Equal(t, "waiting", states()["recent-shadow"])
	redis.Restart(redistest.Empty)
	hang.Until(t, func() bool {
		return eraser.Get(t, "/v1/receipts/"+id)["state"] == "complete"
	})
}
