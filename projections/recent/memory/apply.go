package memory

import (
	"slices"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// applyTogether applies the events of one session after a sequence; a load sees all of them or none.
func (v *generation) applyTogether(s *shard, list []projections.Judged, after uint64, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		if e := &list[i]; e.Position.Seq > after {
			v.apply(s, e, now)
		}
	}
	if held := s.sessions[list[0].SessionID]; held != nil && held.state != nil {
		s.use(held, v.open)
	}
}

// apply applies one event. The caller holds the shard's lock. The view folds the event on the turns
// that it holds, but takes the session's head from the judge.
func (v *generation) apply(s *shard, e *projections.Judged, now int64) {
	s.sweep(now, sweepEvent)
	held := s.sessions[e.SessionID]
	if held != nil && (held.expires < now || !s.unpack(held, v.rules)) {
		s.drop(held)
		held = nil
	}
	switch {
	case held != nil && e.Position.Seq <= held.state.Applied:
		return
	case !e.Change.Kind.ChangesSession():
		if held != nil {
			held.state.Applied = e.Position.Seq
		}
		return
	}
	expires := v.limits.Expires(e.Head).UnixMilli()
	if expires < now {
		if held != nil {
			s.drop(held)
		}
		return
	}
	if held == nil {
		held = s.add(e.SessionID, v.rules)
		held.state.Whole = e.First
	}
	v.fold(held.state, e)
	s.date(held, expires)
}

func (v *generation) fold(held *session.State, e *projections.Judged) {
	if left := e.Change.Left(); left != nil {
		v.leave(held, *left, e.Position.Seq)
	} else {
		trim(held.Fold(e.Recorded), held.Turns, e.Fact)
		v.remove(held, &e.Change)
	}
	held.DropOldest(v.limits.MaxTurns)
	held.Adopt(e.Head)
}

// remove takes out the turns that a change has made tombstones, or replaced.
func (v *generation) remove(held *session.State, c *session.Change) {
	switch c.Kind.Group() {
	case session.GroupText, session.GroupGone:
		if len(c.Turns) > 0 {
			held.Remove(func(t *session.Turn) bool { return left(t, c.Turns) })
			held.Whole = false
		}
	case session.GroupNone, session.GroupHead, session.GroupSessionGone: // the fold has done it
	}
}

// leave puts what a prune has left of a turn in the place of the turn that the view holds. The view can't fold the
// prune, which speaks of versions of the turn that the view does not hold. A turn that is not held is older than all
// that are, or its other events have left the log, and then the prune alone brings it.
func (v *generation) leave(held *session.State, own session.Turn, at uint64) {
	held.Applied = at
	switch t := held.Turn(own.ID); {
	case t != nil:
		*t = own
	case held.Whole, len(held.Turns) > 0 && held.Turns[0].Place < own.Place:
		held.Take(&own)
	}
}

// left reports whether a turn may no longer be shown. gone lists all versions of a redacted turn, since the view holds
// at most one version and can't follow the chain.
func left(t *session.Turn, gone []*session.Turn) bool {
	return t.Status == session.Replaced || t.Status == session.Redacted ||
		slices.ContainsFunc(gone, func(g *session.Turn) bool { return g.ID == t.ID })
}

// before returns the turn right before the newest, if t is the newest.
func before(turns []*session.Turn, t *session.Turn) *session.Turn {
	if n := len(turns); n > 1 && turns[n-1] == t {
		return turns[n-2]
	}
	return nil
}
