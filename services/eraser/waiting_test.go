package eraser_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// However much is erased while a view is down, one asks for it, and no process shows a lag.
//
//conformance:l12
func TestOneWaitsForAViewThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	view := &slow{place: place{name: "view", all: true}, answer: make(chan struct{})}
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Places: []eraser.Place{view}})
	const sessions = 10
	var receipts []string
	for i := range sessions {
		closed, redacted := fmt.Sprint("closed-", i), fmt.Sprint("redacted-", i)
		w.turn(closed, "r1", "text")
		id, err := w.history.EraseSession(t.Context(), closed, services.Erasure{})
		require.NoError(t, err)
		redaction := w.redact(redacted, w.turn(redacted, "r1", "text"))
		receipts = append(receipts, id, events.Position{Seq: redaction.Redacted}.String())
	}
	for i := range sessions {
		w.left(fmt.Sprint("closed-", i), events.TypeSessionErased, events.TypeErasureReceipt)
		w.left(fmt.Sprint("redacted-", i), events.TypeTurnRedacted)
	}
	require.Equal(t, int64(1), view.most.Load())

	// Another process would take the work over. It shows how far this one has looked, though nothing is complete.
	standby := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules})
	head, err := w.log.Head(t.Context(), 0)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assertT) {
		at, err := standby.Applied(t.Context(), 0)
		requireEqual(c, nil, err)
		requireEqual(c, true, at.Seq >= head.Seq)
	}, patience, lookEvery)
	done, err := standby.Resume(t.Context(), 0)
	require.NoError(t, err)
	require.Less(t, done.Seq, head.Seq)
	close(view.answer)
	reader := eraser.NewReceipts(on(inOnePiece(w.log)), w.notes, []eraser.Place{view})
	for _, id := range receipts {
		require.EventuallyWithT(t, func(c *assertT) {
			r, err := reader.Receipt(t.Context(), id)
			requireEqual(c, nil, err)
			for _, p := range r.Places {
				requireEqual(c, false, p.At.IsZero())
			}
		}, patience, lookEvery)
	}
}

// A process may read a view of its own, which no eraser knows.
func TestAReceiptOfAnIdentityTellsOfAViewThatNoEraserKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.turn("s", "r1", "text")
	w.link("s", "alice")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	id, err := w.history.EraseIdentity(t.Context(), "alice", services.Erasure{})
	require.NoError(t, err)
	own := &place{name: "own"}
	reader := eraser.NewReceipts(on(inOnePiece(w.log)), w.notes, []eraser.Place{own})
	complete := func() (log, all bool) {
		r, err := reader.Receipt(t.Context(), id)
		require.NoError(t, err)
		return r.Places[0].Done, r.Complete()
	}
	hang.Until(t, func() bool { log, _ := complete(); return log })
	_, all := complete()
	require.False(t, all, "it has yet to follow")
	own.at = map[int]uint64{}
	for k := range w.log.Partitions() {
		head, err := w.log.Head(t.Context(), k)
		require.NoError(t, err)
		own.at[k] = head.Seq
	}
	w.turn("other", "r1", "text")
	_, all = complete()
	require.True(t, all, "what others write since is nothing to it")
}
