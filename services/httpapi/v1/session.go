package v1

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// sessionJSON is a session as docs/contract.md#reading has it.
type sessionJSON struct {
	SessionID    string          `json:"session_id"`
	IdentityID   *string         `json:"identity_id"`
	Found        bool            `json:"found" doc:"The log knows the session, and it was not erased"`
	Turns        int             `json:"turns" doc:"Turns with and without an answer; redacted ones are none"`
	Pending      int             `json:"pending" doc:"Turns without an answer"`
	CreatedAt    *time.Time      `json:"created_at"`
	LastActiveAt *time.Time      `json:"last_active_at"`
	Position     events.Position `json:"position" example:"0:42"`
}

func newSessionJSON(id string, h conversation.Head, at events.Position) sessionJSON {
	return sessionJSON{
		SessionID: id, IdentityID: optional(&h.Identity), Found: !h.CreatedAt.IsZero() && h.Erased == 0,
		Turns: h.Finalized + h.Pending, Pending: h.Pending,
		CreatedAt: optionalTime(h.CreatedAt), LastActiveAt: optionalTime(h.LastActive), Position: at,
	}
}

// answerSession answers a write on a session.
func answerSession(ctx context.Context, s services.Session) *reply[sessionJSON] {
	note(ctx, s.Position, "", 0)
	return ok(newSessionJSON(s.SessionID, s.Head, s.Position))
}

type linkIn struct {
	SessionID string `path:"session_id"`
	body[linkBody]
}

type linkBody struct {
	IdentityID string `json:"identity_id" doc:"1 to 256 bytes, as for all ids"`
}

func (a *surface) linkSession(ctx context.Context, in *linkIn) (*reply[sessionJSON], error) {
	if err := sessionID(ctx, in.SessionID); err != nil {
		return nil, err
	}
	s, err := a.cfg.SessionWrites.LinkSession(ctx, in.SessionID, in.value.IdentityID, a.source(ctx))
	if err != nil {
		return nil, err
	}
	return answerSession(ctx, s), nil
}

type resetIn struct {
	SessionID string `path:"session_id"`
	body[resetBody]
}

type resetBody struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the log"`
}

func (a *surface) resetSession(ctx context.Context, in *resetIn) (*reply[sessionJSON], error) {
	if err := sessionID(ctx, in.SessionID); err != nil {
		return nil, err
	}
	s, err := a.cfg.SessionWrites.ResetSession(ctx, in.SessionID, in.value.Reason)
	if err != nil {
		return nil, err
	}
	return answerSession(ctx, s), nil
}

type sessionIn struct {
	SessionID   string `path:"session_id"`
	MinPosition string `query:"min_position" doc:"The answer is at least that new"`
}

func (a *surface) session(ctx context.Context, in *sessionIn) (*reply[sessionJSON], error) {
	reading, err := a.read(ctx, in.MinPosition, services.Ask{SessionID: in.SessionID})
	if err != nil {
		return nil, err
	}
	return ok(newSessionJSON(in.SessionID, reading.State.Head(), reading.Position)), nil
}

// read returns a session with at least the turns that ask wants.
func (a *surface) read(ctx context.Context, least string, ask services.Ask) (services.Reading, error) {
	if err := sessionID(ctx, ask.SessionID); err != nil {
		return services.Reading{}, err
	}
	var err error
	if ask.MinPosition, err = minPosition(least); err != nil {
		return services.Reading{}, err
	}
	reading, err := a.cfg.Sessions.Read(ctx, ask)
	if err != nil {
		return services.Reading{}, err
	}
	note(ctx, reading.Position, reading.Source, 0)
	return reading, nil
}
