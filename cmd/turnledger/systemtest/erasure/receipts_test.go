package erasure_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
)

// receipt waits until an erasure is complete.
func waitReceipt(t testing.TB, p *stack.Process, id string) map[string]any {
	t.Helper()
	var out map[string]any
	require.Eventually(t, func() bool {
		out = p.Must(t, http.StatusOK, http.MethodGet, "/v1/receipts/"+id, nil)
		return out["state"] == "complete"
	}, 30*time.Second, 20*time.Millisecond, "%v", out)
	return out
}

// tombstones gives a session's turns as JSON, but for what the answer alone has.
func turnsJSON(t testing.TB, p *stack.Process, id string) string {
	t.Helper()
	raw, err := json.Marshal(p.Must(t, http.StatusOK, http.MethodGet, stack.SessionPath(id)+"/turns?status=all", nil)["turns"])
	require.NoError(t, err)
	return string(raw)
}

// placeOf gives what a receipt says of a place.
func receiptPlace(t testing.TB, receipt map[string]any, name string) map[string]any {
	t.Helper()
	for _, x := range receipt["places"].([]any) {
		if place := x.(map[string]any); place["place"] == name {
			return place
		}
	}
	t.Fatalf("the receipt has no place %s: %v", name, receipt)
	return nil
}
