package httpapi

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// sessionJSON is a session as CONTRACT §2 has it.
type sessionJSON struct {
	SessionID    string          `json:"session_id"`
	IdentityID   *string         `json:"identity_id"`
	Found        bool            `json:"found" doc:"The log knows the session, be it an erased one"`
	Turns        int             `json:"turns" doc:"Turns with and without an answer; redacted ones are none"`
	Pending      int             `json:"pending" doc:"Turns without an answer"`
	CreatedAt    *time.Time      `json:"created_at"`
	LastActiveAt *time.Time      `json:"last_active_at"`
	Position     events.Position `json:"position" example:"0:42"`
}

func newSessionJSON(id string, h conversation.Head, at events.Position) sessionJSON {
	return sessionJSON{
		SessionID: id, IdentityID: optional(&h.Identity), Found: !h.CreatedAt.IsZero() || h.Erased != 0,
		Turns: h.Finalized + h.Pending, Pending: h.Pending,
		CreatedAt: optionalTime(h.CreatedAt), LastActiveAt: optionalTime(h.LastActive), Position: at,
	}
}

type sessionOut struct{ Body sessionJSON }

// answerSession answers a write on a session.
func answerSession(ctx context.Context, s Session) *sessionOut {
	callOf(ctx).position = s.Position
	return &sessionOut{newSessionJSON(s.SessionID, s.Head, s.Position)}
}

type linkIn struct {
	SessionID string `path:"session_id"`
	body[linkBody]
}

type linkBody struct {
	IdentityID string `json:"identity_id" doc:"1 to 256 bytes, as for all ids"`
}

func (a *API) linkSession(ctx context.Context, in *linkIn) (*sessionOut, error) {
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

func (a *API) resetSession(ctx context.Context, in *resetIn) (*sessionOut, error) {
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

func (a *API) session(ctx context.Context, in *sessionIn) (*sessionOut, error) {
	reading, err := a.read(ctx, in.SessionID, in.MinPosition, 0)
	if err != nil {
		return nil, err
	}
	return &sessionOut{newSessionJSON(in.SessionID, reading.State.Head(), reading.Position)}, nil
}

// read gives a session with at least shown turns that prompts may show.
func (a *API) read(ctx context.Context, id, least string, shown int) (Reading, error) {
	if err := sessionID(ctx, id); err != nil {
		return Reading{}, err
	}
	at, err := minPosition(least)
	if err != nil {
		return Reading{}, err
	}
	reading, err := a.cfg.Sessions.Read(ctx, Ask{SessionID: id, Shown: shown, MinPosition: at})
	if err != nil {
		return Reading{}, err
	}
	c := callOf(ctx)
	c.position, c.from = reading.Position, reading.Source
	return reading, nil
}
