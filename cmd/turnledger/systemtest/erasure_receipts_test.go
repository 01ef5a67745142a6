package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
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

// The list has the receipts of redactions, of deleted items and of erasures in all partitions, the newest first, as
// each is by itself; the client goes through its pages.
func TestReceiptsAreListed(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, []string{"TURNLEDGER_PARTITIONS=4"})
	var want []string
	for i := range 4 {
		kept, gone := stack.SessionPath(fmt.Sprint("kept", i)), fmt.Sprint("gone", i)
		turn := p.RecordTurn(t, fmt.Sprint("kept", i), "r", "a question", "an answer")
		p.RecordTurn(t, gone, "r", "a question", "an answer")
		redacted := p.Must(t, http.StatusOK, http.MethodPost, kept+"/turns/"+turn+"/redact", nil)
		erased := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath(gone), nil)
		want = append(want, redacted["position"].(string), erased["receipt_id"].(string))
		item := fmt.Sprint("kept", i, "b")
		p.RecordTurn(t, item, "r", "a question", "an answer")
		want = append(want, deleteItem(t, p, item, 1))
	}
	slices.Reverse(want)
	for _, id := range want {
		waitReceipt(t, p, id)
	}
	list := p.Get(t, "/v1/receipts")
	require.Nil(t, list["next_cursor"])
	for i, one := range list["receipts"].([]any) {
		require.Equal(t, want[i], one.(map[string]any)["receipt_id"])
		require.Equal(t, p.Get(t, "/v1/receipts/"+want[i]), one)
	}
	c, err := client.New(client.Config{URL: p.URL})
	require.NoError(t, err)
	defer c.Close()
	var got []string
	for page := (client.ReceiptPage{}); len(got) == 0 || page.NextCursor != ""; {
		page, err = c.Receipts(t.Context(), 3, page.NextCursor)
		require.NoError(t, err)
		for _, r := range page.Receipts {
			got = append(got, r.ReceiptID)
		}
	}
	require.Equal(t, want, got)
}
