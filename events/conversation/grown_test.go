package conversation_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// extended is a session of one turn whose answer is extended so often.
func extended(n int) *world {
	w := newWorld("s", conversation.Rules{Slim: true})
	id := w.turn("r")
	w.append(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"}})
	w.append(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}})
	for i := range n {
		w.append(&events.TurnExtended{TurnID: id, SessionID: "s", ExtensionID: fmt.Sprint(i),
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: fmt.Sprint("text ", i),
				Messages: fmt.Appendf(nil, `[{"role":"tool","content":"%0100d"}]`, i)}})
	}
	return w
}

// A copy of a state keeps its texts, however the state and the copy are extended further, and both say what a fold of
// the whole log says.
func TestACopyKeepsItsTexts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := extended(60)
		type copied struct {
			*conversation.State
			text string
		}
		var copies []copied
		keep := func(s *conversation.State) {
			copies = append(copies, copied{s, string(s.Turns[0].Answer.AnswerMessages)})
		}
		state := conversation.New("s", conversation.Rules{})
		for i, e := range w.log {
			state.Fold(e)
			for k := range copies {
				// Some of the copies go on by themselves, as a reader's does that reads the view's tail.
				if c := &copies[k]; c.Applied == e.Position.Seq-1 && r.IntN(2) == 0 {
					c.Fold(e)
					c.text = string(c.Turns[0].Answer.AnswerMessages)
				}
			}
			if i > 1 && r.IntN(3) == 0 {
				keep([]func() *conversation.State{state.Clone,
					func() *conversation.State { return state.CloneLast(1) }}[r.IntN(2)]())
			}
		}
		keep(state)
		require.Greater(t, len(copies), 10)
		for _, c := range copies {
			require.Equal(t, c.text, string(c.Turns[0].Answer.AnswerMessages), "seed %d at %d", seed, c.Applied)
			upTo := func(e events.Recorded) bool { return e.Position.Seq <= c.Applied }
			fresh := conversation.New("s", conversation.Rules{})
			for e := range slices.Values(w.log) {
				if upTo(e) {
					fresh.Fold(e)
					fresh = fresh.Clone() // so that each extension is made anew
				}
			}
			require.Equal(t, string(fresh.Turns[0].Answer.AnswerMessages), c.text)
			require.True(t, fresh.Same(c.State))
		}
	}
}

// What the extensions of a turn allocate grows as the texts do: with four times as many it would be 16 times as much if
// each copied those before it.
func TestExtensionsCopyOnlyWhatTheyBring(t *testing.T) {
	bytesOf := func(n int) float64 {
		w := extended(n)
		facts := make([]events.Fact, len(w.log))
		for i, e := range w.log {
			facts[i] = e.Fact
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		state := conversation.New("s", conversation.Rules{})
		for _, e := range w.log {
			state.Fold(e)
		}
		var filled conversation.Turn
		conversation.Rules{}.Fill(&filled, facts...)
		runtime.ReadMemStats(&after)
		require.JSONEq(t, string(state.Turns[0].Answer.AnswerMessages), string(filled.Answer.AnswerMessages))
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := bytesOf(500), bytesOf(2000)
	t.Logf("%.0f bytes for 500 extensions, %.0f for 2,000", few, many)
	require.Less(t, many/few, 6.0)
}

// An extension that comes again is known, however many came since, and a new one is known to be new.
func TestAnExtensionOfManyIsKnownAgain(t *testing.T) {
	t.Parallel()
	const many = 200
	w := extended(many)
	again := func(id string) conversation.Decision {
		return w.live.DecideExtend(conversation.Extend{SessionID: "s", TurnID: w.turn("r"), ExtensionID: id,
			Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`)}})
	}
	for i := range many {
		require.Equal(t, conversation.Decision{Turn: w.live.Turns[0], RestsOn: uint64(i) + 3}, again(fmt.Sprint(i)))
	}
	require.Len(t, again("another").Facts, 1)
}
