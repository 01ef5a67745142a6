package memory

import (
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
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
	if held := s.sessions[list[0].SessionID]; held != nil && held.turns != nil {
		s.opened.use(s, held)
	}
}

// apply applies one event. The caller holds the shard's lock. The view takes the session's head and what became of its
// turns from the judge.
func (v *generation) apply(s *shard, e *projections.Judged, now int64) {
	s.sweep(now, sweepEvent)
	held := s.sessions[e.SessionID]
	if held != nil && (held.expires < now || !s.unpack(held)) {
		s.drop(held)
		held = nil
	}
	switch {
	case held != nil && e.Position.Seq <= held.turns.Applied:
		return
	case !e.Change.Kind.ChangesSession():
		if held != nil {
			held.turns.Applied = e.Position.Seq
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
		held = s.add(e.SessionID, &recent.Held{Whole: e.First})
	}
	held.turns.Apply(e, v.rules, v.limits.MaxTurns)
	s.date(held, expires)
}
