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
func answerSession(ctx context.Context, s services.Session, err error) (sessionJSON, error) {
	note(ctx, s.Position, "", 0)
	return newSessionJSON(s.SessionID, s.Head, s.Position), err
}

type linkIn struct {
	SessionID id `path:"session_id"`
	Body      linkBody
}

type linkBody struct {
	IdentityID string `json:"identity_id" doc:"1 to 256 bytes, as for all ids"`
}

func (a *surface) linkSession(ctx context.Context, in *linkIn) (sessionJSON, error) {
	s, err := a.cfg.SessionWrites.LinkSession(ctx, in.SessionID.text(), in.Body.IdentityID, a.source(ctx))
	return answerSession(ctx, s, err)
}

type resetIn struct {
	SessionID id `path:"session_id"`
	Body      *resetBody
}

type resetBody struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the log"`
}

func (a *surface) resetSession(ctx context.Context, in *resetIn) (sessionJSON, error) {
	s, err := a.cfg.SessionWrites.ResetSession(ctx, in.SessionID.text(), in.Body.Reason)
	return answerSession(ctx, s, err)
}

type sessionIn struct {
	SessionID   id        `path:"session_id"`
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
}

func (a *surface) session(ctx context.Context, in *sessionIn) (sessionJSON, error) {
	reading, err := a.read(ctx, services.Ask{SessionID: in.SessionID.text(), MinPosition: in.MinPosition})
	if err != nil {
		return sessionJSON{}, err
	}
	return newSessionJSON(in.SessionID.text(), reading.State.Head(), reading.Position), nil
}

// read returns a session with at least the turns that ask wants.
func (a *surface) read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	reading, err := a.cfg.Sessions.Read(ctx, ask)
	note(ctx, reading.Position, reading.Source, 0)
	return reading, err
}
