package await

import (
	"container/heap"
	"context"
	"sync"
)

// Watermark is a sequence that only rises, and that callers wait for. The zero value stands at 0. Safe for concurrent
// use.
type Watermark struct {
	mu      sync.Mutex
	at      uint64
	waiting waiters
}

// At returns the sequence.
func (w *Watermark) At() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// Advance raises the sequence to seq, if that is higher, and wakes the callers that waited for it.
func (w *Watermark) Advance(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq <= w.at {
		return
	}
	w.at = seq
	for len(w.waiting) > 0 && w.waiting[0].seq <= seq {
		close(heap.Pop(&w.waiting).(*waiter).done)
	}
}

// Wait blocks until the sequence is at least seq, or ctx ends.
func (w *Watermark) Wait(ctx context.Context, seq uint64) error {
	x := w.reach(seq)
	select {
	case <-x.done:
		return nil
	case <-ctx.Done():
		w.drop(x)
		return ctx.Err()
	}
}

// reach returns a waiter that is done when the sequence is at least seq. A caller that stops waiting earlier must drop
// it.
func (w *Watermark) reach(seq uint64) *waiter {
	x := &waiter{seq: seq, index: -1, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at >= seq {
		close(x.done)
	} else {
		heap.Push(&w.waiting, x)
	}
	return x
}

func (w *Watermark) drop(x *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.index >= 0 && x.index < len(w.waiting) && w.waiting[x.index] == x {
		heap.Remove(&w.waiting, x.index)
	}
}

type waiter struct {
	seq   uint64
	index int
	done  chan struct{}
}

type waiters []*waiter

func (h waiters) Len() int           { return len(h) }
func (h waiters) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiters) Pop() any {
	old := *h
	w := old[len(old)-1]
	w.index = -1
	*h = old[:len(old)-1]
	return w
}
