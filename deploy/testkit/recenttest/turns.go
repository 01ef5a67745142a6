package recenttest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

func unknown(t *testing.T, open Open) {
	w := newWorld(t, open)
	require.Nil(t, w.load("s", -1).State)
	require.Zero(t, w.load("s", -1).Applied)
	w.turn("other", "a").flush()
	require.Nil(t, w.load("s", -1).State)
	require.Equal(t, events.Position{Seq: 2}, w.load("s", -1).Applied)
}

func window(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.start("s", "a").turn("s", "b", "c").start("s", "d").turn("s", "e").start("s", "f").flush()
	for shown, want := range map[int][]string{
		-1: {"a?", "b", "c", "d?", "e", "f?"}, 0: {}, 1: {"e", "f?"}, 2: {"c", "d?", "e", "f?"}, 3: {"b", "c", "d?",
			"e", "f?"},
		4: {"a?", "b", "c", "d?", "e", "f?"}, 1000: {"a?", "b", "c", "d?", "e", "f?"},
	} {
		require.Equal(t, want, w.requests("s", shown), "last %d", shown)
		require.Equal(t, len(want) == 6, w.state("s", shown).Whole, "last %d", shown)
		require.Equal(t, conversation.Counts{Finalized: 3, Pending: 3, ShownFinalized: 3, ShownPending: 3},
			w.state("s", shown).Counts)
	}
}

func leave(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b", "c").start("s", "d").flush()
	require.True(t, w.state("s", -1).Whole)
	w.redact("s", "b").flush()
	require.Equal(t, []string{"a", "c", "d?"}, w.requests("s", -1))
	require.False(t, w.state("s", -1).Whole, "a tombstone is missing")
	w.correct("s", "a", "a2").redact("s", "d").flush()
	require.Equal(t, []string{"a2", "c"}, w.requests("s", -1), "a correction stands in its turn's place")
	held := w.state("s", -1).Turns[0]
	require.Equal(t, ID("s", "a"), held.Replaces)
	require.Equal(t, 2, held.Version)
	w.answer("s", "d").start("s", "b").flush()
	require.Equal(t, []string{"a2", "c"}, w.requests("s", -1), "nothing brings a redacted turn back")
}

func chain(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("chain", "a", "b").correct("chain", "a", "a2").correct("chain", "a2", "a3").flush()
	require.Equal(t, []string{"a3", "b"}, w.requests("chain", -1))
	w.redact("chain", "a").flush()
	require.Equal(t, []string{"b"}, w.requests("chain", -1))

	// A foreign publisher names a version that was replaced long ago, and gives no tombstones.
	w.turn("chain", "c").correct("chain", "c", "c2").correct("chain", "c2", "c3").flush()
	w.add(&events.TurnRedacted{TurnID: ID("chain", "c"), SessionID: "chain"}).flush()
	require.Equal(t, []string{"b"}, w.requests("chain", -1))
}

// restored plays the log of a session whose redacted turn was erased: only the redaction still names the turn.
func restored(t *testing.T, open Open) {
	before := newWorld(t, open)
	before.turn("s", "a", "b").redact("s", "a")
	w := newWorld(t, open)
	for _, e := range before.log.Events {
		if f, ok := e.Fact.(interface{ EventID() string }); ok && e.Position.Seq <= 2 {
			w.add(&events.LinkRefused{SessionID: "other", IdentityID: f.EventID()})
			continue
		}
		w.add(e.Fact)
	}
	w.turn("s", "c").flush()
	require.Equal(t, []string{"b", "c"}, w.requests("s", -1))
	require.Equal(t, Plain(before.turn("s", "c").flush().state("s",
		-1)).(map[string]any)["turns"].([]any)[0].(map[string]any)["RequestID"], "b")
	require.Equal(t, conversation.Counts{Finalized: 2, ShownFinalized: 2}, w.state("s", -1).Counts)
}

func capped(t *testing.T, open Open) {
	w := newWorld(t, open)
	var want []string
	for i := range 3 * limits.MaxTurns {
		r := fmt.Sprint(i)
		want = append(want, r)
		w.start("s", r).flush()
		require.LessOrEqual(t, len(w.state("s", -1).Turns), limits.MaxTurns)
		w.answer("s", r).flush()
		require.Equal(t, i < limits.MaxTurns, w.state("s", -1).Whole)
		require.Equal(t, want[max(0, len(want)-limits.MaxTurns):], w.requests("s", -1))
		require.Equal(t, i+1, w.state("s", -1).Finalized, "the counts go over all turns")
	}
}

func ownCopy(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b").flush()
	s := w.state("s", -1)
	s.Turns[0].Status, s.Turns[0].RequestID = conversation.Redacted, "?"
	s.Turns = s.Turns[:1]
	s.Identity, s.Boundary = "x", 99
	require.Equal(t, []string{"a", "b"}, w.requests("s", -1))
	require.Zero(t, w.state("s", -1).Boundary)

	tail := w.state("s", -1)
	w.turn("s", "c")
	for _, e := range w.log.Events {
		tail.Fold(e)
	}
	w.flush()
	require.Equal(t, Plain(w.state("s", -1)), Plain(tail), "a whole state takes the tail that the view has not seen")
}
