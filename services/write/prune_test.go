package write_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
)

// without asks to take the messages out of a turn that hold a word.
func without(sessionID string, turn uuid.UUID, id, word string) decide.Prune {
	return decide.Prune{SessionID: sessionID, TurnID: turn, PruneID: id,
		Keep: func(m session.Message) json.RawMessage {
			if strings.Contains(string(m.Raw), word) {
				return nil
			}
			return m.Raw
		}}
}

//conformance:o31
func TestATurnIsPruned(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	mine, other := run(t, log), run(t, log)
	must.Fail(mine.PruneTurn(ctx, without("s", events.TurnID("s", "r"), "p", "x")))(t, decide.ErrTurnNotFound)
	began := must.Get(mine.StartTurn(ctx, start("s", "r")))(t)
	must.Get(mine.ExtendTurn(ctx, extend("s", began.ID, "e1", events.HalfQuestion, "more")))(t)
	left := must.Get(other.PruneTurn(ctx, without("s", began.ID, "p1", "more")))(t)
	require.Equal(t, "q r", left.Question.QuestionNeutral)
	require.Nil(t, left.Answer)
	require.Equal(t, session.Pending, left.Status)

	told := must.Get(mine.FinalizeTurn(ctx, finalize("s", "r")))(t)
	require.Equal(t, "q r", told.Question.QuestionNeutral, "the writer of the answer sees what is left")
	for _, id := range []string{"e2", "e3"} {
		must.Get(other.ExtendTurn(ctx, extend("s", began.ID, id, events.HalfAnswer, id+" said")))(t)
	}
	for _, s := range []string{"mine", "again"} {
		left = must.Get(mine.PruneTurn(ctx, without("s", began.ID, "p2", "e2 said")))(t)
		require.Equal(t, s == "again", left.Duplicate)
		require.JSONEq(t, `[{"role":"assistant","content":"a r"},{"role":"x","content":"e3 said"}]`,
			string(left.Answer.AnswerMessages))
	}
	must.Fail(other.PruneTurn(ctx, without("s", began.ID, "p3", "e2 said")))(t, decide.ErrMessageNotFound)
	again := must.Get(run(t, log).ExtendTurn(ctx, extend("s", began.ID, "e2", events.HalfAnswer, "e2 said")))(t)
	require.True(t, again.Duplicate, "a late retry brings nothing back")
	require.NotContains(t, string(again.Answer.AnswerMessages), "e2 said")
	late := must.Get(mine.ExtendTurn(ctx, extend("s", began.ID, "e4", events.HalfAnswer, "e4 said")))(t)
	require.JSONEq(t, `[{"role":"assistant","content":"a r"},{"role":"x","content":"e3 said"},{"role":"x",
		"content":"e4 said"}]`, string(late.Answer.AnswerMessages))
	text := "better"
	next := must.Get(other.CorrectTurn(ctx, decide.Correct{SessionID: "s", RequestID: "c", TurnID: began.ID,
		QuestionNeutral: &text}))(t)
	require.NotContains(t, string(next.Answer.AnswerMessages), "e2 said", "a correction takes what is left")

	must.Fail(mine.PruneTurn(ctx, without("s", began.ID, "p4", "better")))(t, decide.ErrTurnReplaced)
	gone, err := mine.PruneTurn(ctx, without("s", next.ID, "p4", `"role"`))
	require.NoError(t, err)
	require.Equal(t, session.Redacted, gone.Status, "nothing is left")
	must.Fail(other.PruneTurn(ctx, without("s", next.ID, "p5", "better")))(t, decide.ErrTurnRedacted)
	must.Fail(other.PruneTurn(ctx, without("s", next.ID, "p ", "better")))(t, decide.ErrInvalid)
}

// Each of several callers at once takes out another message, and two the same: each message goes, and of the two one is
// told that it was not there.
func TestPrunesAtOnce(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	mine, other := run(t, log), run(t, log)
	began := must.Get(mine.StartTurn(ctx, start("s", "r")))(t)
	must.Get(mine.FinalizeTurn(ctx, finalize("s", "r")))(t)
	words := []string{"w0", "w1", "w2", "w3", "w4", "w5"}
	for _, word := range words {
		must.Get(mine.ExtendTurn(ctx, extend("s", began.ID, word, events.HalfAnswer, word)))(t)
	}
	var wg sync.WaitGroup
	failed := make([]error, 2*len(words))
	for i := range failed {
		by := []*write.Service{mine, other}[i%2]
		wg.Go(func() {
			_, failed[i] = by.PruneTurn(ctx, without("s", began.ID, "", words[i/2]))
		})
	}
	wg.Wait()
	for i := 0; i < len(failed); i += 2 {
		one, two := failed[i], failed[i+1]
		if one != nil {
			one, two = two, one
		}
		require.NoError(t, one)
		require.ErrorIs(t, two, decide.ErrMessageNotFound)
	}
	left := must.Get(other.ExtendTurn(ctx, extend("s", began.ID, "w0", events.HalfAnswer, "w0")))(t)
	require.JSONEq(t, `[{"role":"assistant","content":"a r"}]`, string(left.Answer.AnswerMessages))
}
