package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/turnledger/turnledger/projections/recent"
)

// A view packs sessions that were not used for long, since most sessions are never continued. openBytes is about how
// many bytes of sessions it leaves as they are. A session of more than packedBytes is never packed: its next event
// would have to unpack it all.
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
	turns, err := s.opened.packer.Unpack(held.packed)
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

// opened are the sessions of a view that are not packed, roughly in the order of their last use.
type opened struct {
	most   int64 // bytes
	bytes  atomic.Int64
	packer *recent.Packer

	mu   sync.Mutex
	list []inShard
	gone int // sessions that were dropped since the list was cleared of them
}

// inShard is a session with its shard.
type inShard struct {
	*kept

	of *shard
}

// use notes that a session of a shard was changed or opened, and packs sessions that were not used for longer, until
// few enough bytes are open. A session that was used since it was looked at last is passed over. The caller holds the
// lock of the shard.
func (o *opened) use(s *shard, held *kept) {
	size := held.turns.Bytes()
	bytes := o.bytes.Add(int64(size - held.counted))
	held.counted = size
	if held.open.Swap(true) {
		held.used.Store(true)
	} else {
		o.append(inShard{held, s})
	}
	if bytes <= o.most {
		return
	}
	o.mu.Lock()
	looks := len(o.list)
	o.mu.Unlock()
	for ; looks > 0 && o.bytes.Load() > o.most; looks-- {
		if oldest, some := o.oldest(); some && !o.pack(oldest, s) {
			o.append(oldest)
		}
	}
}

func (o *opened) append(held inShard) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, held)
}

// oldest takes the first session from the list.
func (o *opened) oldest() (first inShard, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if some = len(o.list) > 0; some {
		first, o.list[0] = o.list[0], inShard{}
		o.list = o.list[1:]
	}
	return first, some
}

// pack packs a session, and reports whether it is to leave the list. It does not wait for the lock of another shard,
// whose holder may wait for this one.
func (o *opened) pack(held inShard, locked *shard) bool {
	if held.of != locked {
		if !held.of.mu.TryLock() {
			return false
		}
		defer held.of.mu.Unlock()
	}
	switch {
	case !held.open.Load(): // dropped
	case held.used.Swap(false):
		return false
	default:
		o.close(held.kept)
		if held.turns.Bytes() <= packedBytes {
			held.packed, held.turns = o.packer.Pack(held.turns), nil
		}
	}
	return true
}

// drop forgets a session that the view drops. At most about half of the list are such sessions.
func (o *opened) drop(held *kept) {
	if !held.open.Load() {
		return
	}
	o.close(held)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone++; 2*o.gone > len(o.list) {
		o.list, o.gone = slices.Clone(slices.DeleteFunc(o.list, func(h inShard) bool { return !h.open.Load() })), 0
	}
}

// close takes what is open of a session from the bytes that are.
func (o *opened) close(held *kept) {
	o.bytes.Add(-int64(held.counted))
	held.counted = 0
	held.open.Store(false)
}
