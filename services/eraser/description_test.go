package eraser_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/eraser"
)

func (w *world) describe(request, title string, metadata map[string]*string) {
	w.Helper()
	must.Get(w.history.DescribeSession(w.Context(), conversation.Describe{
		SessionID: "s", RequestID: request, Title: &title, Metadata: metadata,
	}))(w)
}

// What a description replaces leaves the log and the disk, and so does what comes late; the session stays as it was.
func TestAReplacedDescriptionLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.erase(inOnePiece(w.log), eraser.Config{})
	secret := "SECRET value"
	w.describe("d1", "SECRET first", map[string]*string{"folder": &secret})
	w.turn("s", "r1", "KEPT")
	require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")
	stop()
	w.describe("d2", "SECRET second", nil)
	w.describe("d3", "KEPT title", map[string]*string{"folder": nil})
	before := w.state("s")
	w.erase(inOnePiece(w.log), eraser.Config{})
	stays := []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeSessionDescribed}
	w.left("s", stays...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.True(t, before.Same(w.state("s")))

	for _, f := range []*events.SessionDescribed{
		{SessionID: "s", RequestID: "d1", Title: "SECRET again"}, // of a request that the log has
		{SessionID: "s", RequestID: "x", Title: "SECRET stale"},  // decided before the one that stands
		{SessionID: "s", RequestID: "y", Title: "SECRET alone", After: events.Position{Seq: before.Applied}},
	} {
		w.publish(f, "late")
	}
	w.left("s", stays...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	w.describe("d1", "SECRET late", nil)
	require.True(t, before.Same(w.state("s")), "a late retry brings nothing back")
	w.describe("d4", "KEPT newer", nil)
	w.left("s", stays...)
	require.Equal(t, before.CreatedAt, w.state("s").CreatedAt)
}
