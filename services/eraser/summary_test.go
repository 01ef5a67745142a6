package eraser_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/eraser"
)

func (w *world) summarize(request string, through uuid.UUID, text string) {
	w.Helper()
	_, err := w.history.SummarizeSession(w.Context(), conversation.Summarize{
		ThroughTurnID: through,
		Summary:       events.SessionSummarized{SessionID: "s", RequestID: request, SummaryNeutral: text},
	})
	require.NoError(w, err)
}

// A summary leaves the log and the disk with any turn that it covers, whatever voids it, also while no eraser ran; one
// that ends before the turn stays.
func TestAVoidSummaryLeavesTheLog(t *testing.T) {
	t.Parallel()
	const (
		started, finalized = events.TypeTurnStarted, events.TypeTurnFinalized
		summarized         = events.TypeSessionSummarized
	)
	for name, void := range map[string]struct {
		does func(w *world, turn uuid.UUID)
		left []string
	}{
		"redacted": {func(w *world, turn uuid.UUID) { w.redact("s", turn) },
			[]string{started, finalized, summarized, events.TypeTurnRedacted}},
		"corrected": {func(w *world, turn uuid.UUID) { w.correct("s", "c", turn, "KEPT too") },
			[]string{started, finalized, started, finalized, summarized, events.TypeTurnCorrected}},
		"reset": {func(w *world, _ uuid.UUID) {
			_, err := w.history.ResetSession(w.Context(), "s", "")
			require.NoError(w, err)
		}, []string{started, finalized, started, finalized, events.TypeSessionReset}},
	} {
		for _, running := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1)
				if running {
					w.erase(inOnePiece(w.log), eraser.Config{})
				}
				first, second := w.turn("s", "r1", "KEPT"), w.turn("s", "r2", "KEPT second")
				w.summarize("m2", second, "SECRET of both")
				w.summarize("m1", first, "MAYBE of the first")
				require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")
				void.does(w, second)
				before := w.state("s")
				if !running {
					w.erase(inOnePiece(w.log), eraser.Config{})
				}
				w.left("s", void.left...)
				require.Empty(t, holding(t, w.dir, "SECRET"))
				require.True(t, before.Same(w.state("s")))

				w.publish(&events.SessionSummarized{SessionID: "s", RequestID: "late", SummaryNeutral: "SECRET late",
					TurnIDs: []uuid.UUID{second}}, "late")
				w.left("s", void.left...)
				require.Empty(t, holding(t, w.dir, "SECRET"), "one that does not count goes, too")
			})
		}
	}
}
