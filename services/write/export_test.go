package write

import "github.com/turnledger/turnledger/events"

// InMemory returns what the service holds in memory: the weight that bounds it, and the bytes of the texts in
// it.
func (s *Service) InMemory() (weight uint64, texts int) {
	s.sessions.CleanUp()
	for _, x := range s.sessions.All() {
		x.mu.Lock()
		for _, t := range x.state.Turns {
			texts += size(t.Question)
			if t.Answer != nil {
				texts += len(t.Answer.AnswerNeutral)
			}
		}
		for _, o := range x.outcomes.kept {
			if o.turn != nil {
				texts += size(o.turn.Question)
			}
		}
		x.mu.Unlock()
	}
	return s.sessions.WeightedSize(), texts
}

// Sessions returns how many sessions are held. Expired sessions go by themselves.
func (s *Service) Sessions() int { return s.sessions.EstimatedSize() }

// Pinned returns how many sessions stay in memory for a write.
func (s *Service) Pinned() int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	return len(s.inFlight.of)
}

// Adding returns how many calls wait until others have added messages to a session.
func (s *Service) Adding(id string) int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	p := s.inFlight.of[id]
	if p == nil {
		return 0
	}
	return p.adds.Waiting()
}

// Forking returns how many forks of a session wait until others are in the log.
func (s *Service) Forking(id string) int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	p := s.inFlight.of[id]
	if p == nil {
		return 0
	}
	return p.forks.Waiting()
}

// KeptCalls returns how many calls the header of an event names beside its own.
func KeptCalls(e events.Recorded) (n int) {
	for range keptCalls(e) {
		n++
	}
	return n
}

// DropAll drops all states.
func (s *Service) DropAll() {
	s.sessions.InvalidateAll()
	s.sessions.CleanUp()
}
