package follower

import (
	"sync"
	"sync/atomic"

	"github.com/turnledger/turnledger/events/room"
)

// budget bounds the bytes of all rings and judges of a process, of what waits to be durable, and of what readers of the
// log hold that read by themselves. A caller that exceeds it takes bytes from the largest of the former, so that a busy
// partition never starves beside idle ones. The readers have at most half of it.
type budget struct {
	limit int64
	used  atomic.Int64
	room  *room.Room

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

func newBudget(limit int64, room *room.Room) *budget {
	return &budget{limit: limit, room: room, holders: map[holder]struct{}{}}
}

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

func (b *budget) over() bool { return b.used.Load()+min(int64(b.room.Used()), b.limit/2) > b.limit }

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
