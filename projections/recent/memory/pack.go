package memory

import (
	"slices"

	"github.com/turnledger/turnledger/projections/recent"
)

// A view packs sessions that were not used for long, since most sessions are never continued. openBytes is about how
// many bytes of sessions it leaves as they are. A session of more than packedBytes is never packed: its next event would
// have to unpack it all.
const (
	openBytes   = 32 << 20
	packedBytes = 256 << 10
)

// unpacked returns what is held of a session, which is the caller's own if the session is packed. It is nil if the
// packed text can't be read; the view then does not hold the session.
func (s *shard) unpacked(held *kept) *recent.Held {
	if held.packed == nil {
		return held.turns
	}
	turns, err := s.packer.Unpack(held.packed)
	if err != nil {
		return nil
	}
	return turns
}

// unpack makes a session one that events can be applied to, and reports whether it is.
func (s *shard) unpack(held *kept) bool {
	held.turns, held.packed = s.unpacked(held), nil
	return held.turns != nil
}

// use notes that an event changed a session, and packs sessions of the shard that were not used for longer, until few
// enough bytes are open in the view. A session that was used since it was looked at last is passed over.
func (s *shard) use(held *kept, most int64) {
	if held.open {
		held.used.Store(true)
	} else {
		held.open, s.open = true, append(s.open, held)
	}
	s.opened.Add(int64(held.turns.Bytes() - held.counted))
	held.counted = held.turns.Bytes()
	for looks := len(s.open); looks > 0 && s.opened.Load() > most; looks-- {
		oldest := s.open[0]
		s.open[0], s.open = nil, s.open[1:]
		switch {
		case !oldest.open: // dropped
			s.gone--
		case oldest.used.Swap(false):
			s.open = append(s.open, oldest)
		default:
			s.close(oldest)
			if oldest.turns.Bytes() <= packedBytes {
				oldest.packed, oldest.turns = s.packer.Pack(oldest.turns), nil
			}
		}
	}
}

// close takes a session from those that are open.
func (s *shard) close(held *kept) {
	s.opened.Add(-int64(held.counted))
	held.open, held.counted = false, 0
}

// tidy takes dropped sessions out of the list once they are half of it.
func (s *shard) tidy() {
	if s.gone++; s.gone > len(s.open)/2 {
		s.open, s.gone = slices.DeleteFunc(s.open, func(held *kept) bool { return !held.open }), 0
	}
}
