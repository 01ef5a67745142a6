package write_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services/write"
)

func extend(session string, turn uuid.UUID, id string, half events.Half, word string) decide.Extend {
	x := events.Extension{Half: half, Messages: []byte(`[{"role":"x","content":"` + word + `"}]`), AnswerNeutral: word}
	if half == events.HalfQuestion {
		x.QuestionNeutral, x.AnswerNeutral = word, ""
	}
	return decide.Extend{SessionID: session, TurnID: turn, ExtensionID: id, Extension: x,
		Metadata: []byte(`{"channel":"web","phone":"555"}`)}
}

func TestATurnIsExtended(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	mine, other := run(t, log), run(t, log)
	_, err := mine.ExtendTurn(ctx, extend("s", events.TurnID("s", "r"), "e", events.HalfAnswer, "none"))
	require.ErrorIs(t, err, decide.ErrTurnNotStarted)
	began := must.Get(mine.StartTurn(ctx, start("s", "r")))(t)
	_, err = mine.ExtendTurn(ctx, extend("s", began.ID, "e", events.HalfAnswer, "early"))
	require.ErrorIs(t, err, decide.ErrTurnPending)

	asked := must.Get(mine.ExtendTurn(ctx, extend("s", began.ID, "e1", events.HalfQuestion, "more")))(t)
	require.False(t, asked.Duplicate)
	require.Equal(t, "more", asked.Question.QuestionNeutral)
	require.JSONEq(t, `[{"role":"user","content":"q r"},{"role":"x","content":"more"}]`,
		string(asked.Question.QuestionMessages))
	require.Equal(t, []string{"phone"}, asked.DroppedMetadata)
	told := must.Get(other.FinalizeTurn(ctx, finalize("s", "r")))(t)
	require.Equal(t, "more", told.Question.QuestionNeutral, "the writer of the answer sees the extended question")
	_, err = other.ExtendTurn(ctx, extend("s", began.ID, "e2", events.HalfQuestion, "late"))
	require.ErrorIs(t, err, decide.ErrTurnFinalized)

	for n, s := range []*write.Service{mine, other, run(t, log)} {
		x := extend("s", began.ID, "e1a", events.HalfAnswer, []string{"first", "x", "y"}[n])
		answer := must.Get(s.ExtendTurn(ctx, x))(t)
		require.Equal(t, n > 0, answer.Duplicate, "the first extension of an id stands")
		require.Equal(t, "first", answer.Answer.AnswerNeutral)
		require.JSONEq(t, `[{"role":"assistant","content":"a r"},{"role":"x","content":"first"}]`,
			string(answer.Answer.AnswerMessages))
		require.Equal(t, "more", answer.Question.QuestionNeutral)
	}

	text := "corrected"
	next := must.Get(other.CorrectTurn(ctx, decide.Correct{SessionID: "s", RequestID: "c", TurnID: began.ID,
		QuestionNeutral: &text}))(t)
	require.Equal(t, "first", next.Answer.AnswerNeutral, "a correction takes the extended texts")
	_, err = mine.ExtendTurn(ctx, extend("s", began.ID, "e3", events.HalfAnswer, "late"))
	require.ErrorIs(t, err, decide.ErrTurnReplaced)
	must.Get(mine.RedactTurn(ctx, "s", decide.Redact{TurnID: next.ID}))(t)
	_, err = mine.ExtendTurn(ctx, extend("s", next.ID, "e4", events.HalfAnswer, "late"))
	require.ErrorIs(t, err, decide.ErrTurnRedacted)
	must.Fail(mine.ExtendTurn(ctx, decide.Extend{SessionID: "s", TurnID: next.ID, ExtensionID: "e",
		Extension: events.Extension{Half: events.HalfAnswer}}))(t, decide.ErrInvalid)
}
