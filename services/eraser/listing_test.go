package eraser_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// The list has each redaction and erasure of all partitions once, the newest first, whatever the size of a page, and
// says of each what its own receipt says.
func TestReceiptsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	receipts := w.receipts()
	pages := func(limit int) (ids []string, all []services.Receipt) {
		for ask := (services.ReceiptsAsk{Limit: limit}); ; {
			page := must.Get(receipts.Receipts(t.Context(), ask))(t)
			require.LessOrEqual(t, len(page.Receipts), limit)
			for _, r := range page.Receipts {
				ids = append(ids, r.ID)
			}
			all = append(all, page.Receipts...)
			if ask.Cursor = page.NextCursor; ask.Cursor == "" {
				return ids, all
			}
		}
	}
	none, _ := pages(10)
	require.Empty(t, none)
	var want []string
	for i := range 12 {
		session := fmt.Sprint("s", i)
		turn := w.turn(session, "r", "text")
		switch i % 3 {
		case 0:
			want = append(want, w.redact(session, turn).Position.String())
		case 1:
			id := must.Get(w.history.EraseSession(t.Context(), session, services.Erasure{}))(t)
			want = append(want, id)
		default:
			w.link(session, session)
			id := must.Get(w.history.EraseIdentity(t.Context(), session, services.Erasure{}))(t)
			want = append(want, id)
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 5, 100} {
		ids, all := pages(limit)
		require.Equal(t, want, ids, limit)
		for _, r := range all {
			require.Equal(t, w.receipt(r.ID), r)
		}
	}
	must.Fail(receipts.Receipts(t.Context(), services.ReceiptsAsk{Limit: 1, Cursor: "x"}))(t, conversation.ErrInvalid)
}
