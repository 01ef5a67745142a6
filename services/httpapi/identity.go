package httpapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

type identityTurnsIn struct {
	IdentityID  string `path:"identity_id"`
	Since       string `query:"since" doc:"Turns created at or after that time"`
	Until       string `query:"until" doc:"Turns created before that time"`
	Limit       string `query:"limit" doc:"At most so many turns; 20 by default, clamped to 10,000"`
	Cursor      string `query:"cursor" doc:"next_cursor of the page before"`
	MinPosition string `query:"min_position" doc:"The answer is at least that new"`
}

func (in *identityTurnsIn) ask() (ask services.IdentityAsk, err error) {
	ask = services.IdentityAsk{IdentityID: in.IdentityID, Cursor: in.Cursor}
	if err := validID("identity_id", in.IdentityID); err != nil {
		return ask, err
	}
	if ask.Since, err = moment("since", in.Since); err != nil {
		return ask, err
	}
	if ask.Until, err = moment("until", in.Until); err != nil {
		return ask, err
	}
	if ask.Limit, err = limit(in.Limit); err != nil {
		return ask, err
	}
	ask.MinPosition, err = minPosition(in.MinPosition)
	return ask, err
}

func (a *API) identityTurns(ctx context.Context, in *identityTurnsIn) (*turnsOut, error) {
	ask, err := in.ask()
	if err != nil {
		return nil, err
	}
	if a.cfg.Identities == nil {
		return nil, projections.ErrUnavailable
	}
	found, err := a.cfg.Identities.IdentityTurns(ctx, ask)
	switch {
	case errors.Is(err, conversation.ErrInvalid), errors.Is(err, services.ErrPositionNotReached):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", projections.ErrUnavailable, err)
	}
	out := &turnsOut{turnsJSON{Turns: make([]turnJSON, len(found.Turns)), NextCursor: optional(&found.NextCursor)}}
	for i := range found.Turns {
		out.Body.Turns[i] = newTurnJSON(&found.Turns[i])
	}
	callOf(ctx).turns = len(found.Turns)
	return out, nil
}
