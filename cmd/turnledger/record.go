package main

import (
	"context"

	"github.com/turnledger/turnledger/services/client"
)

// importTries outlast a server that is restarted meanwhile.
const importTries = 8

// remoteRecorder records turns on a running server.
type remoteRecorder struct {
	remote
	store client.SessionStore
}

func (r remote) recorder() (remoteRecorder, error) {
	c, err := r.dial(importTries, nil)
	return remoteRecorder{r, c}, err
}

func (r remoteRecorder) start(ctx context.Context, session string, t turnIn) (string, bool, error) {
	turn, err := r.store.StartTurn(ctx, client.Start{
		SessionID: session, RequestID: t.requestID,
		QuestionNeutral: t.question.neutral, QuestionTranslated: t.question.translated, QuestionMessages: t.question.messages,
	})
	return turn.TurnID, turn.Duplicate, r.explain(ctx, err)
}

func (r remoteRecorder) finalize(ctx context.Context, session, turnID string, t turnIn) (bool, error) {
	turn, err := r.store.FinalizeTurn(ctx, client.Finalize{
		SessionID: session, TurnID: turnID,
		AnswerNeutral: t.answer.neutral, AnswerTranslated: t.answer.translated, AnswerMessages: t.answer.messages,
	})
	return turn.Duplicate, r.explain(ctx, err)
}
