package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync/atomic"

	"github.com/turnledger/turnledger/services/client"
)

const (
	// firstTries find out quickly that there is no server.
	firstTries = 8
	// laterTries outlast a server that is restarted meanwhile: the client's patience of a
	// minute ends before them.
	laterTries = 1000
)

// remoteRecorder records turns on a running server.
type remoteRecorder struct {
	remote
	first, later client.SessionStore
	answered     *atomic.Bool
}

func (r remote) recorder() (remoteRecorder, error) {
	first, err := r.dial(firstTries, nil)
	if err != nil {
		return remoteRecorder{}, err
	}
	later, err := r.dial(laterTries, nil)
	return remoteRecorder{r, first, later, &atomic.Bool{}}, err
}

func (r remoteRecorder) store() client.SessionStore {
	if r.answered.Load() {
		return r.later
	}
	return r.first
}

var (
	errOtherQuestion = errors.New("the log holds this turn with another question: give a conversation that was changed an id of its own")
	errOtherAnswer   = errors.New("the log holds this turn with another answer: give a conversation that was changed an id of its own")
)

func (r remoteRecorder) start(ctx context.Context, session string, t turnIn) (string, bool, error) {
	turn, err := r.store().StartTurn(ctx, client.Start{
		SessionID: session, RequestID: t.requestID,
		QuestionNeutral: t.question.neutral, QuestionTranslated: t.question.translated, QuestionMessages: t.question.messages,
	})
	if err != nil {
		return "", false, r.explain(ctx, err)
	}
	r.answered.Store(true)
	stands := halfIn{turn.QuestionNeutral, turn.QuestionTranslated, turn.QuestionMessages}
	if turn.Duplicate && turn.Status != "redacted" && !t.question.same(stands) {
		return "", true, errOtherQuestion
	}
	return turn.TurnID, turn.Duplicate, nil
}

func (r remoteRecorder) finalize(ctx context.Context, session, turnID string, t turnIn) (bool, error) {
	turn, err := r.store().FinalizeTurn(ctx, client.Finalize{
		SessionID: session, TurnID: turnID,
		AnswerNeutral: t.answer.neutral, AnswerTranslated: t.answer.translated, AnswerMessages: t.answer.messages,
	})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == "turn_redacted" {
		return true, nil // it was there, and is to stay away
	}
	if err != nil {
		return false, r.explain(ctx, err)
	}
	stands := halfIn{turn.AnswerNeutral, turn.AnswerTranslated, turn.AnswerMessages}
	if turn.Duplicate && turn.Status != "redacted" && !t.answer.same(stands) {
		return true, errOtherAnswer
	}
	return turn.Duplicate, nil
}

// same holds what is imported against what stands in the log.
func (h halfIn) same(stands halfIn) bool {
	if cmp.Or(h.neutral, h.translated) != stands.neutral || h.translated != stands.translated || len(h.messages) != len(stands.messages) {
		return false
	}
	for i := range h.messages {
		is, was := valueOf(h.messages[i]), valueOf(stands.messages[i])
		if is == nil || !reflect.DeepEqual(is, was) {
			return false
		}
	}
	return true
}

// valueOf reads any JSON, numbers as they are written: some are too large for a float.
func valueOf(raw json.RawMessage) (v any) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}
