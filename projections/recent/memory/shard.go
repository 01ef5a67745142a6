package memory

import (
	"strings"
	"sync"

	"github.com/turnledger/turnledger/events/conversation"
)

// shard is a part of the sessions, behind one lock. They also stand in a list in the
// order of their last activity, so that a sweep looks at none that stay.
type shard struct {
	mu       sync.RWMutex
	sessions map[string]*session
	// ends is between the newest session and the oldest: the list is a ring.
	ends session
	// left are sessions that were given up to the log, by the event that was parked last.
	left map[string]uint64
}

// session is one session that is held. Expires is in milliseconds, as in Redis.
type session struct {
	conversation.State
	expires      int64
	older, newer *session
}

func (s *shard) begin() {
	s.sessions, s.left = map[string]*session{}, map[string]uint64{}
	s.ends.older, s.ends.newer = &s.ends, &s.ends
}

func (s *shard) load(sessionID string, shown int, now int64) *conversation.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	held := s.sessions[sessionID]
	if held == nil || held.expires < now {
		return nil
	}
	return held.CloneLast(newest(held.Turns, shown))
}

// newest returns how many of the last turns hold so many finalized ones; all, if shown is negative.
func newest(turns []*conversation.Turn, shown int) int {
	if shown < 0 || shown >= len(turns) {
		return len(turns)
	}
	n := 0
	for shown > 0 && n < len(turns) {
		n++
		if turns[len(turns)-n].Status == conversation.Finalized {
			shown--
		}
	}
	return n
}

// add takes a session in; the caller dates it.
func (s *shard) add(sessionID string, rules conversation.Rules) *session {
	// The id may be part of a longer string.
	held := &session{State: *conversation.New(strings.Clone(sessionID), rules)}
	s.sessions[held.SessionID] = held
	delete(s.left, sessionID)
	s.append(held)
	return held
}

// date says when a session goes, and moves it to the end of the list.
func (s *shard) date(held *session, expires int64) {
	if held.expires == expires {
		return
	}
	held.expires = expires
	held.unlink()
	s.append(held)
}

// giveUp drops a session of which an event was parked.
func (s *shard) giveUp(sessionID string, parked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.sessions[sessionID]; held != nil {
		s.drop(held)
	}
	s.left[sessionID] = parked
}

// sweep drops up to most sessions whose time is over.
func (s *shard) sweep(now int64, most int) {
	for oldest := s.ends.newer; most > 0 && oldest != &s.ends && oldest.expires < now; oldest = s.ends.newer {
		s.drop(oldest)
		most--
	}
}

func (s *shard) drop(held *session) {
	delete(s.sessions, held.SessionID)
	held.unlink()
}

func (s *shard) append(held *session) {
	held.older, held.newer = s.ends.older, &s.ends
	held.older.newer, s.ends.older = held, held
}

func (s *session) unlink() { s.older.newer, s.newer.older = s.newer, s.older }
