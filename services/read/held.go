package read

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// held keeps values of sessions, bounded by bytes: those that were used last. One that takes more than half of the room
// is not kept, since it would push out all others. Safe for concurrent use.
type held[V comparable] struct {
	mu          sync.Mutex
	lru         *simplelru.LRU[string, weighed[V]]
	bytes, most int
}

type weighed[V comparable] struct {
	value V
	bytes int
}

// leastHeld is the least that a value takes.
const leastHeld = 1 << 10

func newHeld[V comparable](most int) *held[V] {
	h := &held[V]{most: most}
	lru, err := simplelru.NewLRU(most/leastHeld, func(_ string, gone weighed[V]) { h.bytes -= gone.bytes })
	if err != nil {
		panic(err) // the sizes are constants
	}
	h.lru = lru
	return h
}

func (h *held[V]) get(id string) (V, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, has := h.lru.Get(id)
	return w.value, has
}

// of returns the value of a session, or a new one.
func (h *held[V]) of(id string, fresh V) V {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, has := h.lru.Get(id); has {
		return w.value
	}
	h.put(id, fresh, 0)
	return fresh
}

// set keeps a value that takes so many bytes.
func (h *held[V]) set(id string, value V, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(id, value, bytes)
}

// grown notes what a value takes now, if it is still the session's.
func (h *held[V]) grown(id string, value V, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, has := h.lru.Peek(id); has && w.value == value {
		h.put(id, value, bytes)
	}
}

func (h *held[V]) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Remove(id)
}

func (h *held[V]) put(id string, value V, bytes int) {
	h.lru.Remove(id)
	if bytes += leastHeld; bytes > h.most/2 {
		return
	}
	h.lru.Add(id, weighed[V]{value, bytes})
	for h.bytes += bytes; h.bytes > h.most; {
		h.lru.RemoveOldest()
	}
}
