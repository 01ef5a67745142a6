package openai

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/problems"
)

// pageOfConversations returns a page of the sessions of an identity, or of all.
func (s *surface) pageOfConversations(
	ctx context.Context, identity string, p services.Paging,
) (page []conversationJSON, more bool, err error) {
	switch {
	case s.cfg.Lists == nil:
		return nil, false, projections.ErrUnavailable
	case p.Asc:
		return nil, false, bad("order", codeValue,
			"order must be desc: conversations are listed by their last activity.")
	}
	ask := services.SessionsAsk{SessionFilter: projections.SessionFilter{IdentityID: identity}, Limit: p.Limit + 1}
	behind := p.After != ""
	if behind {
		if ask.Until, err = s.activeUntil(ctx, p.After); err != nil {
			return nil, false, err
		}
		ask.Limit++
	}
	// Sessions with the same time are in the order of their ids, so the one to begin after may not be the first.
	for {
		found, err := s.cfg.Lists.Sessions(ctx, ask)
		if err != nil {
			return nil, false, err
		}
		for _, one := range found.Sessions {
			switch {
			case !behind:
				page = append(page, conversationOf(one.SessionID, one.Head))
			case one.SessionID == p.After:
				behind = false
			}
		}
		if len(page) > p.Limit || found.NextCursor == "" {
			break
		}
		ask.Cursor = found.NextCursor
	}
	if behind {
		return nil, false, noAfter()
	}
	return page[:min(p.Limit, len(page))], len(page) > p.Limit, nil
}

func noAfter() *problems.Problem {
	return missing("after", "", "There is nothing of the id in after.")
}

// activeUntil returns the time right after a session's last activity.
func (s *surface) activeUntil(ctx context.Context, id string) (time.Time, error) {
	if err := s.cfg.Reach(ctx, id); err != nil {
		return time.Time{}, unless(err, noAfter())
	}
	reading, err := s.read(ctx, services.Ask{SessionID: id, Shown: 1, Own: true})
	if err != nil {
		return time.Time{}, unless(err, noAfter())
	}
	at := reading.State.LastActive
	if at.IsZero() {
		at = reading.State.CreatedAt
	}
	return at.Add(1), nil
}
