package eraser_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/write"
)

func (w *world) summarize(session, request string, through uuid.UUID, text string) {
	w.Helper()
	must.Get(w.history.SummarizeSession(w.Context(), decide.Summarize{
		ThroughTurnID: through,
		Summary:       events.SessionSummarized{SessionID: session, RequestID: request, SummaryNeutral: text},
	}))(w)
}

// done tells whether an eraser has done all that the log asks for.
func (w *world) done() bool {
	for k := range w.log.Partitions() {
		var done struct{ Seq uint64 }
		_, err := w.notes.Read(w.Context(), fmt.Sprint("eraser.at.", k), &done)
		if err != nil || done.Seq < must.Get(w.log.Head(w.Context(), k))(w).Seq {
			return false
		}
	}
	return true
}

func (w *world) idle() {
	w.Helper()
	hang.Until(w, w.done)
}

// A summary leaves the log and the disk with any turn that it covers, whatever voids it, also while no eraser ran; one
// that ends before the turn stays. An event without text says of each that it was void.
//
//conformance:h69
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
			[]string{started, finalized, summarized, events.TypeTurnRedacted, summarized}},
		"corrected": {func(w *world, turn uuid.UUID) { w.correct("s", "c", turn, "KEPT too") },
			[]string{started, finalized, started, finalized, summarized, events.TypeTurnCorrected, summarized}},
		"reset": {func(w *world, _ uuid.UUID) {
			must.Get(w.history.ResetSession(w.Context(), "s", ""))(w)
		}, []string{started, finalized, started, finalized, events.TypeSessionReset, summarized, summarized}},
	} {
		for _, running := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1)
				if running {
					w.erase(inOnePiece(w.log), eraser.Config{})
				}
				first, second := w.turn("s", "r1", "KEPT"), w.turn("s", "r2", "KEPT second")
				w.summarize("s", "m2", second, "SECRET of both")
				w.summarize("s", "m1", first, "MAYBE of the first")
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

// The request of a void summary makes no other, in a process that has never seen the summary: its text may repeat what
// is gone. So it is also in a branch, and after the eraser died at any step.
//
//conformance:h69
func TestALateRetryOfAVoidSummaryIsRefused(t *testing.T) {
	t.Parallel()
	for name, void := range map[string]struct {
		does  func(w *world, turn uuid.UUID)
		codes [2]string // of the session and of its branch
	}{
		"redacted": {func(w *world, turn uuid.UUID) { w.redact("s", turn) },
			[2]string{session.CodeTurnRedacted, session.CodeTurnRedacted}},
		"corrected": {func(w *world, turn uuid.UUID) { w.correct("s", "c", turn, "KEPT too") },
			[2]string{session.CodeTurnReplaced, session.CodeTurnReplaced}},
		"erased": {func(w *world, _ uuid.UUID) {
			must.Get(w.history.EraseSession(w.Context(), "s", services.Erasure{}))(w)
		}, [2]string{session.CodeSessionErased, session.CodeTurnReplaced}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			first, last := w.turn("s", "r1", "KEPT"), w.turn("s", "r2", "KEPT last")
			w.fork("s", "b", uuid.Nil)
			own := w.turn("b", "own", "KEPT own")
			w.summarize("s", "m", last, "SECRET")
			w.summarize("b", "m", own, "SECRET")
			void.does(w, first)
			w.die(eraser.Config{}, 8)
			gone := func() bool { return len(holding(t, w.dir, "SECRET")) == 0 }
			hang.Until(t, gone)
			fresh := servicetest.Start(t, w.log, servicetest.Config{History: write.Config{Rules: rules}})
			for i, of := range []struct {
				session string
				through uuid.UUID
			}{{"s", last}, {"b", own}} {
				for _, writes := range []*write.Service{w.history, fresh.History} {
					_, err := writes.SummarizeSession(t.Context(), decide.Summarize{ThroughTurnID: of.through,
						Summary: events.SessionSummarized{SessionID: of.session, RequestID: "m",
							SummaryNeutral: "SECRET"}})
					refusal, is := errors.AsType[*decide.Refusal](err)
					require.True(t, is, "%s: %v", of.session, err)
					require.Equal(t, void.codes[i], refusal.Code, of.session)
				}
			}
			w.summarize("b", "anew", own, "KEPT anew")
			require.True(t, gone())
		})
	}
}

// What takes a shared turn from a branch takes its summaries from the log and the disk, at any depth and in other
// partitions, whether the summary comes before or after, and though the eraser dies at any step. The receipt waits for
// those that came before. A summary that ends before the turn stays.
func TestAVoidSummaryOfABranchLeavesTheLog(t *testing.T) {
	t.Parallel()
	for name, void := range map[string]struct {
		does  func(w *world, turn uuid.UUID) (receipt string)
		stays bool
	}{
		"redacted": {func(w *world, turn uuid.UUID) string {
			w.redact("root", turn)
			return fmt.Sprint(events.Partition("root", w.log.Partitions()), ":", w.state("root").Turn(turn).Redacted)
		}, true},
		"corrected": {func(w *world, turn uuid.UUID) string {
			w.correct("root", "c", turn, "KEPT too")
			return ""
		}, true},
		"erased": {func(w *world, _ uuid.UUID) string {
			return must.Get(w.history.EraseSession(w.Context(), "root", services.Erasure{}))(w)
		}, false},
	} {
		for how, partitions := range map[string]int{"runs": 4, "starts": 1, "dies": 4} {
			t.Run(fmt.Sprint(name, " ", how), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, partitions)
				first, second := w.turn("root", "r1", "KEPT"), w.turn("root", "r2", "KEPT second")
				w.fork("root", "b", uuid.Nil)
				own := w.turn("b", "own", "KEPT own")
				w.fork("b", "of b", uuid.Nil)
				w.summarize("b", "m", own, "SECRET of b")
				w.summarize("b", "short", first, "MAYBE")
				w.summarize("of b", "m", second, "SECRET of the branch of b")
				require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")
				gone := func() bool { return len(holding(t, w.dir, "SECRET")) == 0 }
				stop := func() {}
				if how != "starts" { // it has met the summaries, and finds them by the marks
					stop = w.erase(inOnePiece(w.log), eraser.Config{})
					w.idle()
					require.False(t, gone(), "what stands stays")
				}
				if how == "dies" {
					stop()
				}
				receipt := void.does(w, second)
				switch how {
				case "starts":
					w.erase(inOnePiece(w.log), eraser.Config{})
				case "dies":
					w.die(eraser.Config{}, 8)
				}
				if receipt != "" {
					w.complete(receipt)
					require.True(t, gone(), "the receipt waits")
				}
				hang.Until(t, gone)
				// As a process that read the session before records it.
				for session, through := range map[string]uuid.UUID{"b": own, "of b": second} {
					f := &events.SessionSummarized{SessionID: session, RequestID: "late",
						SummaryNeutral: "SECRET late", TurnIDs: []uuid.UUID{first, second}}
					if through == own {
						f.TurnIDs = append(f.TurnIDs, own)
					}
					w.publish(f, "")
				}
				require.NotEmpty(t, w.types("of b"))
				hang.Until(t, gone)
				require.Equal(t, void.stays, len(holding(t, w.dir, "MAYBE")) > 0)
				require.NotEmpty(t, holding(t, w.dir, "KEPT own"))
			})
		}
	}
}

// A redaction reads no branch but those that hold summaries, or lead to some: a conversation with responses has a
// branch for each.
//
//conformance:o82
func TestARedactionReadsOnlyBranchesWithSummaries(t *testing.T) {
	t.Parallel()
	const branches = 200
	w := newWorld(t, 1)
	turn := w.turn("root", "r1", "KEPT")
	var g errgroup.Group
	g.SetLimit(16)
	log := &counted{Log: inOnePiece(w.log), reads: map[string]int{}}
	w.erase(log, eraser.Config{Rate: 1_000})
	for i := range branches {
		g.Go(func() error {
			_, err := w.history.ForkSession(t.Context(), decide.ForkSession{
				SessionID: "root", RequestID: fmt.Sprint(i), ChildID: fmt.Sprint("b", i)})
			return err
		})
	}
	require.NoError(t, g.Wait())
	w.fork("b7", "of b7", uuid.Nil)
	w.summarize("of b7", "m", turn, "SECRET")
	w.summarize("b8", "m", turn, "SECRET")
	w.idle()
	require.Less(t, log.forget()["root"], branches/10, "a fork does not read the root, with a mark of each")
	w.redact("root", turn)
	w.complete(fmt.Sprint(0, ":", w.state("root").Turn(turn).Redacted))
	require.Empty(t, holding(t, w.dir, "SECRET"))
	reads := log.forget()
	require.Positive(t, reads["b8"])
	for _, read := range []string{"root", "b7", "b8", "of b7"} {
		delete(reads, read)
	}
	require.Empty(t, reads)
}
