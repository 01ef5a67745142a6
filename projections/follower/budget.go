package follower

import (
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of all rings and judges of a process. A caller that exceeds it takes bytes from the largest
// of these, so that a busy partition never starves beside idle ones.
type budget struct {
	limit int64
	used  atomic.Int64

	mu      sync.Mutex
	holders map[holder]struct{}
}

// holder is what holds bytes of a budget. Its methods are safe for concurrent use.
type holder interface {
	// size returns the bytes that it holds.
	size() int64
	// shed lets something go, the oldest first, and reports whether it did. It may refuse while it is busy.
	shed() bool
}

func newBudget(limit int64) *budget { return &budget{limit: limit, holders: map[holder]struct{}{}} }

func (b *budget) add(h holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[h] = struct{}{}
}

func (b *budget) remove(h holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holders, h)
}

func (b *budget) grow(bytes int) { b.used.Add(int64(bytes)) }

func (b *budget) over() bool { return b.used.Load() > b.limit }

// enforce sheds until the budget is kept. One caller at a time does it. The caller must hold no lock of a holder.
func (b *budget) enforce() {
	if !b.over() || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for b.over() {
		var largest holder
		for h := range b.holders {
			if largest == nil || h.size() > largest.size() {
				largest = h
			}
		}
		if largest == nil || !largest.shed() {
			return // it sheds by itself, or the next caller asks again
		}
	}
}
