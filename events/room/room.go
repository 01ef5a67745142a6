// Package room bounds the memory that those who read a log take.
package room

import "sync"

// Room bounds the bytes that the readers of a log hold, all together. Each reader has a floor beside it, so that none
// waits for another. Beyond its floor, a reader may hold as much as half of what is free, so that those who hang never
// fill the room. The zero value is floors alone. Safe for concurrent use.
type Room struct {
	mu          sync.Mutex
	limit, used int
}

// Floor is what a reader may always hold. A single event may be larger.
const Floor = 64 << 10

// New returns a room of so many bytes.
func New(limit int) *Room { return &Room{limit: limit} }

// Used returns how many bytes the readers hold beyond their floors.
func (r *Room) Used() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// Tally returns a tally for a reader more.
func (r *Room) Tally() *Tally { return &Tally{room: r} }

// Tally is what one reader holds of a room. Safe for concurrent use.
type Tally struct {
	room *Room
	held int
}

// Grow notes that the reader holds so many bytes more, or less.
func (t *Tally) Grow(bytes int) {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.grow(bytes)
}

func (t *Tally) grow(bytes int) {
	t.room.used -= max(0, t.held-Floor)
	t.held += bytes
	t.room.used += max(0, t.held-Floor)
}

// Left returns how many bytes more the reader may hold; 0 or less if it should hold no more.
func (t *Tally) Left() int {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	return t.left()
}

func (t *Tally) left() int { return Floor - t.held + max(0, t.room.limit-t.room.used)/2 }

// Take takes bytes for a reader, at most so many, and returns how many. It takes none if that is less than the floor,
// unless the reader needs them.
func (t *Tally) Take(most int, needed bool) int {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	n := min(most, t.left())
	switch {
	case needed:
		n = max(n, Floor)
	case n < Floor:
		return 0
	}
	t.grow(n)
	return n
}

// Leave lets go of all that the reader holds.
func (t *Tally) Leave() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.grow(-t.held)
}
