package read

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// Sessions implements services.SessionLister.
func (l *Lists) Sessions(ctx context.Context, ask services.SessionsAsk) (services.SessionPage, error) {
	page, err := exactly(ctx, l, ask.IdentityID, ask.MinPosition, func(tables Tables) (
		services.SessionPage, []events.Position, error,
	) {
		list, at, next, err := tables.Sessions(ctx, ask.SessionFilter, ask.Limit, ask.Cursor)
		return services.SessionPage{Sessions: list, NextCursor: next}, at, err
	})
	if err == nil {
		err = l.lastTurns(ctx, page.Sessions)
	}
	return page, err
}

// readsAtOnce is how many sessions of a page are read at once for their last turns.
const readsAtOnce = 8

// lastTurns adds the last turns of anonymous sessions, whose texts the tables don't hold.
func (l *Lists) lastTurns(ctx context.Context, page []projections.ListedSession) error {
	if l.cfg.Sessions == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i := range page {
		s := &page[i]
		if s.Identity != "" || s.Finalized+s.Pending == 0 || time.Since(s.LastActive) > l.cfg.TTL {
			continue
		}
		g.Go(func() error {
			reading, err := l.cfg.Sessions.Read(ctx, services.Ask{
				SessionID: s.SessionID, Shown: 1, Pending: true, MinPosition: []events.Position{s.Position},
			})
			if err == nil {
				s.LastTurn = lastOf(reading.State)
			}
			return err
		})
	}
	return g.Wait()
}

// lastOf returns the newest turn of a session that is neither redacted nor replaced, or nil.
func lastOf(s *session.State) *projections.LastTurn {
	if s.Erased != 0 {
		return nil
	}
	for i := len(s.Turns) - 1; i >= 0; i-- {
		t := s.Turns[i]
		if t.Status != session.Pending && t.Status != session.Finalized {
			continue
		}
		out := &projections.LastTurn{TurnID: t.ID, Status: t.Status}
		if t.Question != nil {
			out.Question = cut(t.Question.QuestionNeutral)
		}
		if t.Answer != nil {
			out.Answer = cut(t.Answer.AnswerNeutral)
		}
		return out
	}
	return nil
}

// cut returns as many characters of a text as a list shows.
func cut(s string) string {
	n := 0
	for i := range s {
		if n++; n > projections.LastTurnText {
			return s[:i]
		}
	}
	return s
}
