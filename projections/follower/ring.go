package follower

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// ring holds the newest events of one partition for readers that take them at their own pace. Its events are durable,
// and never changed. It forgets what all readers have taken, and also what they have not, where the budget asks for it:
// a reader that falls out so reads the log by itself.
type ring[E any] struct {
	seq func(*E) uint64
	// continues reports whether an event belongs together with the next one.
	continues func(*E) bool
	budget    *budget
	// idle is called without the lock when the last reader has left an open ring.
	idle func()

	mu sync.Mutex
	// opened is closed while the ring is open.
	opened chan struct{}
	open   bool
	err    error
	// The ring holds each event after base and up to end.
	base, end uint64
	chunks    []chunk[E]
	holds     map[*hold]struct{}

	bytes atomic.Int64
}

// chunk is a run of events: all that the log has after one sequence and up to another.
type chunk[E any] struct {
	events      []E
	after, last uint64
	bytes       int
}

// hold keeps the events after a sequence in the ring for one reader.
type hold struct {
	at uint64
	// lost: the ring no longer has them, or was closed.
	lost    bool
	changed chan struct{}
}

func newRing[E any](b *budget, seq func(*E) uint64, continues func(*E) bool, idle func()) *ring[E] {
	r := &ring[E]{
		seq: seq, continues: continues, budget: b, idle: idle, opened: make(chan struct{}), holds: map[*hold]struct{}{},
	}
	b.add(r)
	return r
}

// start opens the ring after a sequence, unless it is open.
func (r *ring[E]) start(at uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(at)
}

// startHeld is start with a hold at that sequence; nil if the ring was open.
func (r *ring[E]) startHeld(at uint64) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begin(at) {
		return nil
	}
	return r.newHold(at)
}

func (r *ring[E]) begin(at uint64) bool {
	if r.open {
		return false
	}
	r.open, r.err, r.base, r.end = true, nil, at, at
	close(r.opened)
	return true
}

// stop closes the ring, with an error where it may not be opened again.
func (r *ring[E]) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if !r.open {
		return
	}
	r.open, r.opened = false, make(chan struct{})
	r.clear()
	for h := range r.holds {
		h.markLost()
	}
	clear(r.holds)
}

func (r *ring[E]) clear() {
	r.chunks = nil
	r.grow(-int(r.bytes.Load()))
}

func (r *ring[E]) grow(bytes int) {
	r.bytes.Add(int64(bytes))
	r.budget.grow(bytes)
}

// held reports whether the ring has readers. If it has none, held empties the ring and lets it go on after the sequence
// at, since no reader needs the events up to there.
func (r *ring[E]) held(at uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.holds) > 0 {
		return true
	}
	r.clear()
	r.base, r.end = max(r.base, at), max(r.end, at)
	return false
}

// publish adds a chunk. If it does not go on where the ring ends, the ring begins anew with it.
func (r *ring[E]) publish(c chunk[E]) {
	r.mu.Lock()
	if !r.open || c.last <= r.end {
		r.mu.Unlock()
		return
	}
	if c.after != r.end {
		r.clear()
		r.base = c.after
	}
	r.end = c.last
	r.chunks = append(r.chunks, c)
	r.grow(c.bytes)
	r.trim()
	for h := range r.holds {
		h.signal()
	}
	r.mu.Unlock()
	r.budget.enforce()
}

// trim forgets the chunks that all readers have taken.
func (r *ring[E]) trim() {
	least := r.end
	for h := range r.holds {
		least = min(least, h.at)
	}
	n := 0
	for n < len(r.chunks) && r.chunks[n].last <= least {
		n++
	}
	r.forget(n)
}

// forget drops the oldest n chunks.
func (r *ring[E]) forget(n int) {
	if n == 0 {
		return
	}
	bytes := 0
	for _, c := range r.chunks[:n] {
		bytes += c.bytes
	}
	r.base = r.chunks[n-1].last
	r.chunks = slices.Delete(r.chunks, 0, n)
	r.grow(-bytes)
}

// size implements holder.
func (r *ring[E]) size() int64 { return r.bytes.Load() }

// shed implements holder: it forgets the oldest chunk, whoever has not taken it yet.
func (r *ring[E]) shed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.chunks) == 0 {
		return false
	}
	r.forget(1)
	for h := range r.holds {
		if h.at < r.base {
			h.signal()
		}
	}
	return true
}

// hold returns a hold for a reader that is at a sequence: it keeps all that comes after the floor. It returns nil while
// the ring is closed. The floor is asked for under the lock.
func (r *ring[E]) hold(floor func() uint64) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil
	}
	return r.newHold(max(floor(), r.end))
}

func (r *ring[E]) newHold(at uint64) *hold {
	h := &hold{at: at, changed: make(chan struct{}, 1)}
	r.holds[h] = struct{}{}
	return h
}

// join lets a reader that has read up to a sequence take from the ring from there on. It fails before the reader is at
// the hold, and for ever if the hold is lost.
func (r *ring[E]) join(h *hold, at uint64) (joined, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case h.lost || h.at < r.base:
		return false, true
	case at < h.at:
		return false, false
	}
	h.at = at
	return true, false
}

// take returns the next events of a reader, about so many and of about so many bytes at most, and the sequence up to
// which there are no others. It returns nothing if there is nothing yet; lost if the reader fell out.
func (r *ring[E]) take(h *hold, most, bytes int) (batch []E, upTo uint64, lost bool, err error) {
	r.mu.Lock()
	if h.lost || h.at < r.base {
		defer r.mu.Unlock()
		return nil, h.at, true, r.err
	}
	pieces, upTo := r.pieces(h.at, most, bytes)
	if h.at = upTo; upTo == r.end {
		r.trim()
	}
	r.mu.Unlock()
	if len(pieces) == 1 {
		return slices.Clip(pieces[0]), upTo, false, nil
	}
	return slices.Concat(pieces...), upTo, false, nil
}

// pieces returns at most so many events after a sequence, as they lie in the chunks, and the sequence up to which these
// are all.
func (r *ring[E]) pieces(after uint64, most, bytes int) (pieces [][]E, upTo uint64) {
	upTo = after
	from := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].last > after })
	for _, c := range r.chunks[from:] {
		left := c.events[sort.Search(len(c.events), func(i int) bool { return r.seq(&c.events[i]) > after }):]
		if n := cut(left, most, r.continues); n < len(left) {
			return append(pieces, left[:n]), r.seq(&left[n-1])
		}
		if upTo = c.last; len(left) > 0 {
			pieces = append(pieces, left)
		}
		most, bytes = most-len(left), bytes-c.bytes
		if most <= 0 || bytes <= 0 {
			break
		}
	}
	return pieces, upTo
}

// leave ends a hold.
func (r *ring[E]) leave(h *hold) {
	r.mu.Lock()
	_, held := r.holds[h]
	delete(r.holds, h)
	idle := held && len(r.holds) == 0
	if held { // else the ring was closed meanwhile
		r.trim()
	}
	r.mu.Unlock()
	if idle && r.idle != nil {
		r.idle()
	}
}

func (h *hold) markLost() {
	h.lost = true
	h.signal()
}

func (h *hold) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}
