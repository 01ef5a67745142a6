package memory

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// shard is a part of the sessions, behind one lock. The sessions are also in a list in the order of their last
// activity, so that a sweep looks only at sessions that have expired.
type shard struct {
	mu       sync.RWMutex
	sessions map[string]*kept
	// ends joins the newest session and the oldest, since the list is a ring.
	ends kept
	// left holds the sessions that were given up, with the sequence of the event that was parked last: reads of them
	// use the log.
	left   map[string]uint64
	opened *opened
}

// kept is a session that the view holds. Expires is in milliseconds, as in Redis.
type kept struct {
	id string
	// turns is nil while the session is packed, and packed is nil while it is not.
	turns  *recent.Held
	packed []byte
	// open: the session is one of the opened, and counted are the bytes that it has there. used: since it was looked at
	// there.
	open, used   atomic.Bool
	counted      int
	expires      int64
	older, newer *kept
}

func (s *shard) begin(opened *opened) {
	s.opened = opened
	s.sessions, s.left = map[string]*kept{}, map[string]uint64{}
	s.ends.older, s.ends.newer = &s.ends, &s.ends
}

// load returns what is held of a session, or nil. A session that was packed is open from then on, unless all of its
// turns are asked for: who does that looks at many sessions.
func (s *shard) load(sessionID string, rules session.Rules, shown int, now int64) *session.State {
	s.mu.RLock()
	held := s.sessions[sessionID]
	if held == nil || held.packed == nil || shown == recent.AllTurns {
		defer s.mu.RUnlock()
		return s.state(held, rules, shown, now)
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if held = s.sessions[sessionID]; held != nil && held.packed != nil && s.unpack(held) {
		held.used.Store(true)
		s.opened.use(s, held)
	}
	return s.state(held, rules, shown, now)
}

// state returns the session, or nil if it is over or can't be read: then it is as if it was not held.
func (s *shard) state(held *kept, rules session.Rules, shown int, now int64) *session.State {
	if held == nil || held.expires < now {
		return nil
	}
	held.used.Store(true)
	turns := s.unpacked(held)
	if turns == nil {
		return nil
	}
	state, err := turns.State(held.id, rules, shown)
	if err != nil {
		return nil
	}
	return state
}

// add adds a session; the caller calls date.
func (s *shard) add(sessionID string, turns *recent.Held) *kept {
	// The copy frees the longer string that the id may be part of.
	id := strings.Clone(sessionID)
	held := &kept{id: id, turns: turns}
	s.sessions[id] = held
	delete(s.left, sessionID)
	s.append(held)
	return held
}

// date sets when a session expires, and moves it to the end of the list.
func (s *shard) date(held *kept, expires int64) {
	if held.expires == expires {
		return
	}
	held.expires = expires
	held.unlink()
	s.append(held)
}

// giveUp drops a session after one of its events was parked.
func (s *shard) giveUp(sessionID string, parked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.sessions[sessionID]; held != nil {
		s.drop(held)
	}
	s.left[sessionID] = parked
}

// sweep drops up to most expired sessions.
func (s *shard) sweep(now int64, most int) {
	for oldest := s.ends.newer; most > 0 && oldest != &s.ends && oldest.expires < now; oldest = s.ends.newer {
		s.drop(oldest)
		most--
	}
}

func (s *shard) drop(held *kept) {
	delete(s.sessions, held.id)
	held.unlink()
	s.opened.drop(held)
	held.turns, held.packed = nil, nil
}

func (s *shard) append(held *kept) {
	held.older, held.newer = s.ends.older, &s.ends
	held.older.newer, s.ends.older = held, held
}

func (s *kept) unlink() { s.older.newer, s.newer.older = s.newer, s.older }
