package eraser_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// holding returns the files below a folder that hold a text.
func holding(t testing.TB, dir, text string) []string {
	t.Helper()
	return natstest.Holding(t, text, []string{dir})
}

func TestARedactedTurnLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	other := w.turn("s", "r0", "KEPT")
	gone := w.turn("s", "r1", "SECRET")
	require.NotEmpty(t, holding(t, w.dir, "SECRET"), "the search finds what there is")

	before := w.redact("s", gone)
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.NotEmpty(t, holding(t, w.dir, "KEPT"))

	state := w.state("s")
	require.Len(t, state.Turns, 2)
	require.Equal(t, other, state.Turns[0].ID)
	require.Equal(t, before.Turn, *state.Turns[1], "the tombstone is the same as before")
}

func TestWhatExtendedARedactedTurnLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	gone := w.turn("s", "r1", "SECRET")
	extend := func(id string) {
		w.publish(&events.TurnExtended{TurnID: gone, SessionID: "s", ExtensionID: id, Extension: events.Extension{
			Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool","content":"SECRET"}]`),
			AnswerNeutral: "SECRET"}}, "")
	}
	extend("e1")
	extend("e2")
	before := w.redact("s", gone)
	w.left("s", events.TypeTurnRedacted)
	require.Equal(t, before.Turn, *w.state("s").Turn(gone), "the tombstone is the same as before")
	extend("e3")
	w.left("s", events.TypeTurnRedacted)
	require.Empty(t, holding(t, w.dir, "SECRET"))
}

func TestAllVersionsOfARedactedTurnLeaveTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	first := w.turn("s", "r1", "SECRET-1")
	second := w.correct("s", "c1", first, "SECRET-2")
	w.correct("s", "c2", second, "SECRET-3")
	// One that lost its race names the turn too.
	w.publish(&events.TurnCorrected{
		TurnID: events.TurnID("s", "c3"), SessionID: "s", RequestID: "c3", ReplacesTurnID: first,
		Question: events.Question{QuestionNeutral: "SECRET-4"}, Answer: events.Answer{AnswerNeutral: "SECRET-4"},
	}, "")
	live := w.state("s")
	w.redact("s", second)
	w.left("s", events.TypeTurnRedacted)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.Len(t, w.state("s").Turns, len(live.Turns))
}

// sessionReads counts how often sessions are read.
type sessionReads struct {
	Log
	n atomic.Int64
}

func (l *sessionReads) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.n.Add(1)
	return l.Log.Session(ctx, id, after, upTo)
}

// A long session of which much is redacted is read once for what waits, not once for
// each redaction.
func TestRedactionsOfOneSessionGoTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	const turns = 60
	want := []string{events.TypeTurnStarted, events.TypeTurnFinalized}
	w.turn("s", "kept", "KEPT")
	for n := range turns {
		w.turn("s", fmt.Sprint(n), "SECRET")
		want = append(want, events.TypeTurnRedacted)
	}
	for n := range turns {
		w.redact("s", events.TurnID("s", fmt.Sprint(n)))
	}
	before := w.state("s")
	log := &sessionReads{Log: inOnePiece(w.log)}
	w.erase(log, eraser.Config{Rate: 10_000})
	w.left("s", want...)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.NotEmpty(t, holding(t, w.dir, "KEPT"))
	require.True(t, before.Same(w.state("s")))
	require.Less(t, int(log.n.Load()), turns, "three readings for each redaction would be %d", 3*turns)
}

func TestWhatComesLateIsErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	gone := w.turn("s", "r1", "SECRET")
	w.redact("s", gone)
	w.left("s", events.TypeTurnRedacted)

	w.publish(&events.TurnStarted{TurnID: gone, SessionID: "s", RequestID: "r1",
		Question: events.Question{QuestionNeutral: "SECRET again"}}, "late")
	w.publish(&events.TurnFinalized{TurnID: gone, SessionID: "s", Answer: events.Answer{AnswerNeutral: "SECRET again"}},
		"late")
	w.left("s", events.TypeTurnRedacted)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.True(t, w.start("s", "r1", "SECRET").Duplicate, "a late retry brings nothing back")
	require.Empty(t, holding(t, w.dir, "SECRET"))

	must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{Reason: "asked to"}))(t)
	w.left("s", events.TypeSessionErased, events.TypeErasureReceipt)
	w.publish(&events.TurnStarted{TurnID: events.TurnID("s", "r2"), SessionID: "s", RequestID: "r2",
		Question: events.Question{QuestionNeutral: "SECRET late"}}, "")
	w.left("s", events.TypeSessionErased, events.TypeErasureReceipt)
	require.Empty(t, holding(t, w.dir, "SECRET"))
	// The log goes on behind sequences that are no more.
	w.turn("s2", "r1", "text")
}

// A foreign redaction that lacks the tombstones: without the turn's events a replay
// would not know that there was one.
func TestEventsStayWhereTheyAreNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	gone := w.turn("s", "r1", "SECRET")
	foreign := w.publish(&events.TurnRedacted{TurnID: gone, SessionID: "s"}, "")
	other := w.turn("s", "r2", "SECRET-2")
	own := w.redact("s", other).Position
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted, events.TypeTurnRedacted)
	require.NotZero(t, w.state("s").Turn(gone).Redacted)
	w.complete(own.String()) // it is said after the events have gone
	require.False(t, w.receipt(foreign.String()).Complete(), "what stays is not said to be gone")
}

func TestAnErasedSessionLeavesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "SECRET")
	w.link("s", "alice")
	w.turn("s", "r2", "SECRET")
	docs := &documents{}
	receipt := must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{Reason: "asked to", By: "ops"}))(t)
	again := must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{}))(t)
	require.Equal(t, receipt, again)
	closed := w.state("s")

	place := &place{name: "recent"}
	known := w.asking(receipt, place)
	r := known()
	require.False(t, r.Complete())
	require.Equal(t, []string{"asked to", "ops"}, []string{r.Reason, r.By})
	require.Equal(t, receipt, w.receipt(r.Position.String(), place).ID, "by its position, too")
	w.erase(inOnePiece(w.log), eraser.Config{Places: []eraser.Place{place}, Documents: []eraser.Documents{docs}})
	w.left("s", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
	require.False(t, known().Complete())
	place.follow()
	w.left("s", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt,
		events.TypeErasureReceipt)
	r = known()
	require.True(t, r.Complete())
	require.Equal(t, []string{"log", "recent"}, []string{r.Places[0].Place, r.Places[1].Place})
	require.Equal(t, []int{4, 2}, []int{*r.Places[0].Erased, *r.Places[1].Erased})
	require.WithinRange(t, r.Places[0].At, r.RequestedAt, time.Now())
	require.True(t, closed.Same(w.state("s")))
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.ElementsMatch(t, []uuid.UUID{events.TurnID("s", "r1"), events.TurnID("s", "r2")}, docs.deleted("s"))
}

func TestAnErasedIdentityLeavesTheLog(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"one partition": 1, "four": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, partitions)
			w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Places: []eraser.Place{&place{name: "audit",
				at: map[int]uint64{0: 1 << 40, 1: 1 << 40, 2: 1 << 40, 3: 1 << 40}}}})
			for _, s := range []string{"a", "b", "c", "d", "e"} {
				w.turn(s, "r1", "SECRET "+s)
				w.link(s, "alice")
			}
			w.turn("other", "r1", "KEPT")
			w.link("other", "bob")
			receipt := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{Reason: "left"}))(t)
			again := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
			require.Equal(t, receipt, again)
			var got services.Receipt
			known := w.asking(receipt)
			hang.Until(t, func() bool { got = known(); return got.Complete() && len(got.Places) == 2 })
			require.Equal(t, 10, *got.Places[0].Erased)
			require.Equal(t, "alice", got.IdentityID)
			require.Empty(t, holding(t, w.dir, "SECRET"))

			// What is linked later goes too.
			w.turn("late", "r1", "SECRET late")
			w.link("late", "alice")
			w.left("late", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
			require.Empty(t, holding(t, w.dir, "SECRET"))
			require.Equal(t, []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeSessionLinked},
				w.types("other"))
		})
	}
}

// Each view looks a session up when it is closed: not all of a large identity at once.
func TestSessionsOfAnIdentityAreClosedAsTheyAreErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for n := range 12 {
		w.turn(fmt.Sprint(n), "r1", "SECRET")
		w.link(fmt.Sprint(n), "alice")
	}
	log := &closedSessions{Log: inOnePiece(w.log)}
	w.erase(log, eraser.Config{Rate: 200})
	// It has seen the links when it has done something behind them.
	w.redact("seen", w.turn("seen", "r1", "SECRET"))
	w.left("seen", events.TypeTurnRedacted)
	w.complete(must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t))
	require.Empty(t, holding(t, w.dir, "SECRET"))
	log.mu.Lock()
	defer log.mu.Unlock()
	require.Equal(t, 2, log.max, "one in hand, and one that waits")
}

func TestARedactionsReceiptSaysWhatWasErasedAndWhen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	memory := &place{name: "memory"}
	first := w.turn("s", "r1", "SECRET")
	id := w.redact("s", w.correct("s", "c1", first, "SECRET")).Position.String()
	receipt := w.asking(id, memory)
	w.erase(inOnePiece(w.log), eraser.Config{Places: []eraser.Place{memory}})
	hang.Until(t, func() bool { return receipt().Places[0].Done })
	r := receipt()
	require.Equal(t, 3, *r.Places[0].Erased)
	require.WithinRange(t, r.Places[0].At, r.RequestedAt, time.Now())
	require.False(t, r.Complete())
	require.Zero(t, r.Places[1].At)
	memory.follow()
	hang.Until(t, func() bool { r = receipt(); return !r.Places[1].At.IsZero() })
	require.True(t, r.Complete())
	require.WithinRange(t, r.Places[1].At, r.Places[0].At, time.Now())
	require.Equal(t, r, receipt())
}

// An eraser that dies between two events, and one that is stopped while a view is behind,
// take neither a count nor a time away.
func TestARedactionsReceiptOutlivesTheEraser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	memory := &place{name: "memory"}
	places := []eraser.Place{memory}
	id := w.redact("s", w.correct("s", "c1", w.turn("s", "r1", "SECRET"), "SECRET")).Position.String()
	receipt := w.asking(id, places...)
	m := newMortal(inOnePiece(w.log), 3, false) // an event, settled, and another
	stop := w.erase(m, eraser.Config{Places: places})
	<-m.dead
	stop()
	w.left("s", events.TypeTurnStarted, events.TypeTurnRedacted)
	require.False(t, receipt().Places[0].Done)
	require.Zero(t, receipt().Places[0].At)

	stop = w.erase(inOnePiece(w.log), eraser.Config{Places: places})
	hang.Until(t, func() bool { return receipt().Places[0].Done })
	log := receipt().Places[0]
	require.Equal(t, 3, *log.Erased)
	require.False(t, log.At.IsZero())
	stop()
	memory.follow()
	require.Zero(t, receipt().Places[1].At, "nobody looks")

	w.erase(inOnePiece(w.log), eraser.Config{Places: places})
	hang.Until(t, func() bool { return !receipt().Places[1].At.IsZero() })
	require.Equal(t, log, receipt().Places[0], "the first time stands")
	require.True(t, receipt().Complete())
}

func TestReceiptsThatThereAreNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "text")
	receipts := w.receipts()
	for _, id := range []string{"", "x", "0-0-abc", "9-0-abc", "0:1", "0:77", "7:1", strings.Repeat("9", 300),
		"0-99999999999999999999-x"} {
		must.Fail(receipts.Receipt(t.Context(), id))(t, services.ErrNoReceipt, id)
	}
	redacted := w.redact("s", events.TurnID("s", "r1"))
	require.False(t, w.receipt(redacted.Position.String()).Complete())
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.complete(redacted.Position.String())
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("s"))
}
