package conversation_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// A branch shares a turn as it was at the fork: what extended it before, also after the turn that the fork names, and
// nothing that extends it later.
func TestABranchSharesWhatExtendedATurnBeforeTheFork(t *testing.T) {
	t.Parallel()
	for _, answer := range []events.Answer{
		{AnswerNeutral: "a", AnswerTranslated: "A"},
		{AnswerNeutral: "a", AnswerMessages: []byte(`[ {"role":"tool"} ]`)},
		{AnswerNeutral: "a", AnswerMessages: []byte(`[]`)},
	} {
		w := newWorld("s", conversation.Rules{})
		for _, request := range []string{"r1", "r2"} {
			w.append(&events.TurnStarted{TurnID: w.turn(request), SessionID: "s", RequestID: request,
				Question: events.Question{QuestionNeutral: "q"}})
			w.append(&events.TurnFinalized{TurnID: w.turn(request), SessionID: "s", Answer: answer})
		}
		extend := func(request, id string) {
			w.append(&events.TurnExtended{TurnID: w.turn(request), SessionID: "s", ExtensionID: id,
				Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: id,
					Messages: []byte(fmt.Sprintf(`[{"role":"x","content":%q}]`, id))},
				Metadata: []byte(fmt.Sprintf(`{"channel":%q}`, id))})
		}
		extend("r1", "before")
		w.append(&events.TurnCorrected{TurnID: w.turn("c2"), SessionID: "s", RequestID: "c2",
			ReplacesTurnID: w.turn("r2"), Question: events.Question{QuestionNeutral: "q"}, Answer: answer})
		extend("c2", "before")
		at := w.live.Clone()
		mark := must.Get(at.Clone().Mark(conversation.ForkSession{SessionID: "s", RequestID: "f", ChildID: "child",
			TurnID: w.turn("c2")}, conversation.Fork{}, events.Position{Seq: w.head}, w.clock))(t)
		require.EqualValues(t, 7, mark.Segments[0].Through.Seq)
		for n := range 3 {
			extend("r1", fmt.Sprint("later ", n))
			extend("c2", fmt.Sprint("later ", n))
		}
		for _, parent := range []*conversation.State{at, w.live} {
			before := parent.Clone()
			child := conversation.New("child", conversation.Rules{})
			head := child.Head()
			head.HeldDescription = head.ForkedBy(conversation.Fork{ForkedAt: 1, From: "s", Root: mark.Root})
			child.Adopt(head)
			child.Inherit(mark.Segments, []*conversation.State{parent}, math.MaxInt)
			require.Len(t, child.Turns, 3)
			for i, got := range child.Turns {
				require.Equal(t, at.Turns[i].Answer, got.Answer)
				require.Equal(t, string(at.Turns[i].Metadata()), string(got.Metadata()))
				require.Equal(t, at.Turns[i].Extensions(), got.Extensions())
			}
			require.Equal(t, before.Turns, parent.Turns, "the parent stays as it is")
		}
	}
}
