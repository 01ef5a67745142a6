package memory

import (
	"github.com/turnledger/turnledger/events/session"
)

// A view packs sessions that were not used for long, since most sessions are never continued. openSessions is how many
// it leaves as they are, roughly. A session of more than packedTurns turns is never packed: it would gain little, and
// its next event would have to unpack it all.
const (
	openSessions = 16384
	packedTurns  = 64
)

// unpacked returns the state of a session, which is the caller's own if the session is packed. It is nil if the packed
// text can't be read; the view then does not hold the session.
func (s *shard) unpacked(held *kept, rules session.Rules) *session.State {
	if held.packed == "" {
		return held.state
	}
	state, err := s.packer.Unpack(held.id, rules, held.packed)
	if err != nil {
		return nil
	}
	return state
}

// unpack makes a session one that can be folded on, and reports whether it is.
func (s *shard) unpack(held *kept, rules session.Rules) bool {
	held.state, held.packed = s.unpacked(held, rules), ""
	return held.state != nil
}

// use notes that an event changed a session, and packs sessions of the shard that were not used for longer, until few
// enough are open in the view. A session that was used since it was looked at last is passed over.
func (s *shard) use(held *kept, most int64) {
	if held.open {
		held.used.Store(true)
	} else {
		held.open, s.open = true, append(s.open, held)
		s.opened.Add(1)
	}
	for looks := len(s.open); looks > 0 && s.opened.Load() > most; looks-- {
		oldest := s.open[0]
		s.open[0], s.open = nil, s.open[1:]
		switch {
		case !oldest.open: // dropped
		case oldest.used.Swap(false):
			s.open = append(s.open, oldest)
		default:
			s.close(oldest)
			if len(oldest.state.Turns) <= packedTurns {
				oldest.packed, oldest.state = s.packer.Pack(oldest.state), nil
			}
		}
	}
}

// close takes a session from those that are open.
func (s *shard) close(held *kept) {
	if held.open {
		held.open = false
		s.opened.Add(-1)
	}
}
