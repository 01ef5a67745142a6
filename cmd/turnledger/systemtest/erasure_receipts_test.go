package systemtest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// waitReceipt waits until an erasure is complete.
func waitReceipt(t testing.TB, p *stack.Process, id string) map[string]any {
	t.Helper()
	var out map[string]any
	hang.Until(t, func() bool {
		out = p.Get(t, "/v1/receipts/"+id)
		return out["state"] == "complete"
	}, "%v", out)
	return out
}

// turnsJSON returns a session's turns as JSON, without what an answer has beside them.
func turnsJSON(t testing.TB, p *stack.Process, id string) string {
	t.Helper()
	raw, err := json.Marshal(p.Get(t, stack.SessionPath(id)+"/turns?status=all")["turns"])
	require.NoError(t, err)
	return string(raw)
}

// receiptPlace returns what a receipt says of a place.
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
