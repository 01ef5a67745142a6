package identities

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

var _ services.SessionLister = (*Reader)(nil)

// WithSessions lets lists show the last turn of an anonymous session that was active within ttl, which sessions reads.
// Without it such sessions are listed without a turn.
func (r *Reader) WithSessions(sessions services.SessionReader, ttl time.Duration) *Reader {
	r.sessions, r.ttl = sessions, ttl
	return r
}

// Sessions implements services.SessionLister.
func (r *Reader) Sessions(ctx context.Context, ask services.SessionsAsk) (services.SessionPage, error) {
	erasures := projections.ErasureCheck{Log: r.log}
	return projections.Unerased(ctx, erasures, ask.IdentityID, func() (page services.SessionPage, err error) {
		tables, err := r.tables()
		if err != nil {
			return page, err
		}
		err = r.exactly(ctx, tables, ask.MinPosition, func() (at []events.Position, err error) {
			page.Sessions, at, page.NextCursor, err = tables.Sessions(ctx, ask.SessionFilter, ask.Limit, ask.Cursor)
			return at, err
		})
		if err == nil {
			err = r.lastTurns(ctx, page.Sessions)
		}
		return page, err
	})
}

// readsAtOnce is how many sessions of a page are read at once for their last turns.
const readsAtOnce = 8

// lastTurns adds the last turns of anonymous sessions, whose texts the tables don't hold.
func (r *Reader) lastTurns(ctx context.Context, page []projections.ListedSession) error {
	if r.sessions == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i := range page {
		s := &page[i]
		if s.Identity != "" || s.Finalized+s.Pending == 0 || time.Since(s.LastActive) > r.ttl {
			continue
		}
		g.Go(func() error {
			reading, err := r.sessions.Read(ctx, services.Ask{
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
func lastOf(s *conversation.State) *projections.LastTurn {
	if s.Erased != 0 {
		return nil
	}
	for i := len(s.Turns) - 1; i >= 0; i-- {
		t := s.Turns[i]
		if t.Status != conversation.Pending && t.Status != conversation.Finalized {
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

var _ services.Searcher = (*Reader)(nil)

// Search implements services.Searcher.
func (r *Reader) Search(ctx context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	erasures := projections.ErasureCheck{Log: r.log}
	return projections.Unerased(ctx, erasures, ask.IdentityID, func() (page services.SearchPage, err error) {
		tables, err := r.tables()
		if err != nil {
			return page, err
		}
		page.Mode = services.SearchWords
		err = r.exactly(ctx, tables, ask.MinPosition, func() ([]events.Position, error) {
			page.Hits, page.Positions, page.NextCursor, err = tables.Search(
				ctx, ask.SearchFilter, ask.Limit, ask.Cursor,
			)
			return page.Positions, err
		})
		return page, err
	})
}
