package memory

import (
	"context"
	"fmt"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// Restore implements projections.View.
func (v *View) Restore(ctx context.Context, from projections.Session) ([]events.Position, error) {
	g := v.served.Load()
	p, err := g.partition(ctx, from.Partition)
	if err != nil {
		return nil, fmt.Errorf("restore a session in memory: %w", err)
	}
	s := p.shard(g.hash(from.ID))
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.sessions[from.ID]
	if p.applied.Load() < from.UpTo || s.left[from.ID] > from.UpTo {
		return nil, nil
	}
	if held != nil {
		if turns := s.unpacked(held); turns != nil && turns.Applied > from.UpTo {
			return nil, nil
		}
	}
	delete(s.left, from.ID)
	if held != nil {
		s.drop(held)
	}
	if expires := g.limits.Expires(from.State.Head()).UnixMilli(); expires >= g.now().UnixMilli() {
		g.take(s, from.State, expires)
	}
	return from.Letters, nil
}

// take holds a folded session.
func (v *generation) take(s *shard, folded *session.State, expires int64) {
	v.limits.Trim(folded)
	held := s.add(folded.SessionID, recent.NewHeld(folded))
	s.date(held, expires)
	s.opened.use(s, held)
}
