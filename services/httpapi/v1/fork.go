package v1

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
)

type forkIn struct {
	SessionID      id     `path:"session_id"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	Body           forkBody
}

type forkBody struct {
	RequestID    *id     `json:"request_id,omitempty" doc:"The same one again gives the same branch, for ever; required here or as Idempotency-Key"`
	TurnID       *string `json:"turn_id,omitempty" doc:"The branch begins with the turns up to and with this one"`
	BeforeTurnID *string `json:"before_turn_id,omitempty" doc:"The branch begins with the turns right before this one; both left out: up to the last finalized one"`
	SessionID    *id     `json:"session_id,omitempty" doc:"The branch; left out: computed from session and request"`
}

// forkedJSON is a branch in the answer to a fork, which creates a session.
type forkedJSON struct{ sessionJSON }

func (f *forkedJSON) existedBefore() bool { return *f.Duplicate }

func (a *surface) forkSession(ctx context.Context, in *forkIn) (forkedJSON, error) {
	request, err := requestID(in.Body.RequestID, in.IdempotencyKey)
	if err != nil {
		return forkedJSON{}, err
	}
	s, err := a.cfg.SessionWrites.ForkSession(ctx, conversation.ForkSession{
		SessionID: in.SessionID.text(), RequestID: request, ChildID: in.Body.SessionID.text(),
		TurnID: namedTurn(in.Body.TurnID), BeforeTurnID: namedTurn(in.Body.BeforeTurnID),
	})
	out, err := answerSession(ctx, s, err)
	return forkedJSON{out}, err
}

// namedTurn returns the turn that a body names, uuid.Nil for none. A malformed id names a turn that no session has.
func namedTurn(text *string) uuid.UUID {
	if text == nil {
		return uuid.Nil
	}
	if turn := parseTurnID(*text); turn != uuid.Nil {
		return turn
	}
	return uuid.Max
}
