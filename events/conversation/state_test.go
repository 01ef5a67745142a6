package conversation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// long is a session of n turns, every fifth of them corrected late.
func long(n int) *world {
	w := newWorld("s", conversation.Rules{SessionTTL: 24 * time.Hour})
	q, a := events.Question{QuestionNeutral: "q"}, events.Answer{AnswerNeutral: "a"}
	for i := range n {
		request := fmt.Sprint("r", i)
		w.append(&events.TurnStarted{TurnID: w.turn(request), SessionID: "s", RequestID: request, Question: q})
		w.append(&events.TurnFinalized{TurnID: w.turn(request), SessionID: "s", Answer: a})
	}
	for i := 0; i < n; i += 5 {
		request := fmt.Sprint("c", i)
		w.append(&events.TurnCorrected{
			TurnID: w.turn(request), SessionID: "s", RequestID: request, ReplacesTurnID: w.turn(fmt.Sprint("r", i)),
			Question: q, Answer: a,
		})
	}
	return w
}

// found are the turns that the state finds by their ids, of those that it may hold.
func found(t *testing.T, s *conversation.State, w *world) int {
	t.Helper()
	held := map[uuid.UUID]*conversation.Turn{}
	for _, x := range s.Turns {
		held[x.ID] = x
	}
	for id := range w.names {
		require.Same(t, held[id], s.Turn(id), w.names[id])
	}
	return len(held)
}

func TestLongSessions(t *testing.T) {
	t.Parallel()
	t.Run("each turn is found, at any length", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{0, 1, 26, 27, 28, 31, 32, 33, 100} {
			w := long(n)
			require.Equal(t, n+(n+4)/5, found(t, w.live, w))
			require.Equal(t, conversation.Counts{Finalized: n, ShownFinalized: n}, w.live.Counts)
		}
	})
	t.Run("the order is that of the places, however late a correction came", func(t *testing.T) {
		t.Parallel()
		w := long(40)
		for i := 1; i < len(w.live.Turns); i++ {
			a, b := w.live.Turns[i-1], w.live.Turns[i]
			require.True(t, a.Place < b.Place || a.Place == b.Place && a.Version < b.Version)
		}
	})
	t.Run("DropOldest leaves the newest, and is honest about it", func(t *testing.T) {
		t.Parallel()
		w := long(100)
		s := w.live.Clone()
		require.Zero(t, s.DropOldest(120))
		require.True(t, s.Whole)
		require.Equal(t, 110, s.DropOldest(10))
		require.False(t, s.Whole)
		require.Equal(t, 10, found(t, s, w))
		require.Equal(t, "r99", s.Turns[9].RequestID)
		require.Equal(t, 120, found(t, w.live, w), "the original is untouched")
	})
	t.Run("Remove takes out what it is told to, and is honest about it", func(t *testing.T) {
		t.Parallel()
		w := long(100)
		replaced := func(x *conversation.Turn) bool { return x.Status == conversation.Replaced }
		w.live.Remove(replaced)
		require.Equal(t, 100, found(t, w.live, w))
		require.False(t, w.live.Whole)
	})
	t.Run("an erasure forgets them all", func(t *testing.T) {
		t.Parallel()
		w := long(40)
		w.append(&events.SessionErased{SessionID: "s", ReceiptID: "x"})
		require.Zero(t, found(t, w.live, w))
		require.False(t, w.live.Found())
	})
}

func TestClone(t *testing.T) {
	t.Parallel()
	t.Run("of the last n turns", func(t *testing.T) {
		t.Parallel()
		w := long(50)
		copies := map[*conversation.State]int{w.live.Clone(): 60}
		for _, n := range []int{0, 1, 31, 32, 60, 61} {
			copies[w.live.CloneLast(n)] = min(n, 60)
		}
		for c, want := range copies {
			require.Equal(t, want, found(t, c, w))
			require.Equal(t, want == 60, c.Whole)
			require.Equal(t, w.live.Head(), c.Head())
		}
	})
	t.Run("shares no turn with its original", func(t *testing.T) {
		t.Parallel()
		w := long(50)
		c := w.live.Clone()
		for i := range c.Turns {
			require.NotSame(t, c.Turns[i], w.live.Turns[i])
		}
		w.append(&events.TurnRedacted{TurnID: w.turn("r0"), SessionID: "s"})
		require.Equal(t, conversation.Replaced, c.Turn(w.turn("r0")).Status)
		require.NotNil(t, c.Turn(w.turn("c0")).Question)
	})
}

func TestHead(t *testing.T) {
	t.Parallel()
	t.Run("is all of a session but its turns: a state that adopts it goes on like the original", func(t *testing.T) {
		t.Parallel()
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 2))
		w := long(3)
		w.append(&events.SessionReset{SessionID: "s", After: events.Position{Seq: w.head}})
		w.append(&events.SessionLinked{SessionID: "s", IdentityID: "alice"})
		adopted := conversation.New("s", w.rules)
		adopted.Adopt(w.live.Head())
		w.clock = w.clock.Add(time.Duration(random.IntN(100)) * time.Hour)
		w.append(&events.TurnStarted{TurnID: w.turn("new"), SessionID: "s", RequestID: "new",
			Question: events.Question{QuestionNeutral: "q"}})
		adopted.Fold(w.log[len(w.log)-1])
		require.Equal(t, w.live.Head(), adopted.Head(), "seed %d", seed)
	})
}
