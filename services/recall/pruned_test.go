package recall_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// What a prune leaves of a turn takes the place of its document; where no text is left, the document goes.
func TestPrunedTurnsAreRememberedAsTheyAreLeft(t *testing.T) {
	both(t, func(w *world) {
		w.forward()
		w.add(&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
		turn, _ := w.turn("s", "r1", "I like teal.", "Teal it is.")
		prune := func(id string, q events.Question, a events.Answer) {
			state := natstest.Fold(t, w.log, "s", conversation.Rules{})
			f := &events.TurnPruned{TurnID: turn, SessionID: "s", PruneID: id, Question: q, Answer: a,
				Tombstones: state.Tombstones(state.Chain(state.Turn(turn)), w.log.Partition("s")),
				Session:    &events.SessionMark{CreatedAt: state.CreatedAt, LastActiveAt: state.LastActive}}
			for _, x := range state.Turn(turn).Extensions() {
				f.Parts = append(f.Parts, events.Part{ID: x.ID, Half: x.Half})
			}
			w.until(w.add(f))
		}
		prune("p1", events.Question{QuestionNeutral: "I like teal."}, events.Answer{})
		require.Len(t, w.contents(), 1)
		require.NotContains(t, w.contents()[0], "Teal it is.")
		require.Contains(t, w.contents()[0], "I like teal.")
		prune("p2", events.Question{}, events.Answer{
			AnswerMessages: []byte(`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`)})
		require.Empty(t, w.contents())
	})
}
