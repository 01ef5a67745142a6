package v1

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
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

// forkedFrom says where a branch begins; null for a session that is no branch.
type forkedFrom struct{ conversation.Fork }

// MarshalJSON writes the session of the last shared turn and, unless none is shared, that turn.
func (f forkedFrom) MarshalJSON() ([]byte, error) {
	if f.ForkedAt == 0 {
		return []byte("null"), nil
	}
	out := struct {
		SessionID string     `json:"session_id"`
		TurnID    *uuid.UUID `json:"turn_id"`
	}{SessionID: f.From}
	if through := f.Through(); through != uuid.Nil {
		out.TurnID = &through
	}
	return json.Marshal(out)
}

// Schema documents the object.
func (forkedFrom) Schema(huma.Registry) *huma.Schema {
	text := func(what string, nullable bool) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: what, Nullable: nullable}
	}
	return &huma.Schema{Type: huma.TypeObject, Nullable: true, Properties: map[string]*huma.Schema{
		"session_id": text("The session of the last shared turn", false),
		"turn_id":    text("The last shared turn; null where none is shared", true),
	}, Required: []string{"session_id", "turn_id"}}
}
