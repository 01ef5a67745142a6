package eraser_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
		id := must.Get(w.history.EraseSession(t.Context(), closed, services.Erasure{}))(t)
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
	head := must.Get(w.log.Head(t.Context(), 0))(t)
	hang.Until(t, func() bool {
		at, err := standby.Applied(t.Context(), 0)
		return err == nil && at.Seq >= head.Seq
	})
	done := must.Get(standby.Resume(t.Context(), 0))(t)
	require.Less(t, done.Seq, head.Seq)
	close(view.answer)
	for _, id := range receipts {
		hang.Until(t, func() bool {
			untimed := func(p services.ReceiptPlace) bool { return p.At.IsZero() }
			return !slices.ContainsFunc(w.receipt(id, view).Places, untimed)
		})
	}
}

// A process may read a view of its own, which no eraser knows.
func TestAReceiptOfAnIdentityTellsOfAViewThatNoEraserKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.turn("s", "r1", "text")
	w.link("s", "alice")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	id := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
	own := &place{name: "own"}
	receipt := w.asking(id, own)
	hang.Until(t, func() bool { return receipt().Places[0].Done })
	require.False(t, receipt().Complete(), "it has yet to follow")
	own.at = map[int]uint64{}
	for k := range w.log.Partitions() {
		own.at[k] = must.Get(w.log.Head(t.Context(), k))(t).Seq
	}
	w.turn("other", "r1", "text")
	require.True(t, receipt().Complete(), "what others write since is nothing to it")
}
