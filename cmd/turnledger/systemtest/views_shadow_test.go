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

// Reads are compared with the second view and answered from the first. A process that only erases has no first view to
// compare, and still waits for the second before it calls an erasure complete. When the second view is away, and when
// it was emptied, reads go on.
//
//conformance:i82
func TestASecondRecentViewIsComparedAndNeverAnswers(t *testing.T) {
	t.Parallel()
	redis, nats := redistest.Start(t), stack.FreeAddress(t)
	shadow := "TURNLEDGER_RECENT_SHADOW=" + redis.URL()
	p := stack.Serve(t, append(stack.ServeNATS(nats), shadow), "--roles", "api,context,recent")
	eraser := stack.Serve(t, append(stack.JoinNATS(nats), shadow), "--roles", "eraser,api")
	p.RecordTurn(t, "s", "r1", "a secret question", "an answer")
	p.RecordTurn(t, "gone", "r1", "a secret question", "an answer")
	metric := func(result string) bool {
		require.Len(t, p.Context(t, "s"), 2)
		return strings.Contains(p.Metrics(t), `turnledger_recent_shadow_reads_total{result="`+result+`"}`)
	}
	hang.Until(t, func() bool { return metric("same") })
	require.NotContains(t, p.Metrics(t), `result="different"`)

	p.WaitCaughtUp(t, "recent-shadow")
	redis.Stop()
	hang.Until(t, func() bool { return metric("failed") })
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("gone"), nil)["receipt_id"].(string)
	hang.Until(t, func() bool {
		return receiptPlace(t, eraser.Get(t, "/v1/receipts/"+id), "log")["state"] == "done"
	})
	require.Equal(t, "waiting", receiptPlace(t, eraser.Get(t, "/v1/receipts/"+id), "recent-shadow")["state"])
	redis.Restart(redistest.Empty)
	waitReceipt(t, eraser, id)
	require.Len(t, p.Context(t, "s"), 2)
	require.NotContains(t, p.Log.String(), "secret")
}
