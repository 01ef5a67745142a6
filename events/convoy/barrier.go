package await

import (
	"context"
	"sync"
)

// Barrier asks for the stream's last sequence once for all waiting reads (etcd's ReadIndex). A read can't use a
// question that began before the read; the next question serves all reads that arrived meanwhile. Set Ask before the
// first Wait.
type Barrier struct {
	Ask  func(context.Context) (uint64, error)
	mu   sync.Mutex
	next *question
	busy bool
}

type question struct {
	done chan struct{}
	seq  uint64
	err  error
}

// Wait returns a sequence that was the last one at some moment after the call began.
func (b *Barrier) Wait(ctx context.Context) (uint64, error) {
	b.mu.Lock()
	if b.next == nil {
		b.next = &question{done: make(chan struct{})}
	}
	q := b.next
	if !b.busy {
		b.busy = true
		// A question does not belong to its first caller: it goes on if that caller gives up.
		go b.serve(context.WithoutCancel(ctx))
	}
	b.mu.Unlock()
	select {
	case <-q.done:
		return q.seq, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// serve asks until nobody waits. Each question ends by Ask's own deadline.
func (b *Barrier) serve(ctx context.Context) {
	for {
		b.mu.Lock()
		q := b.next
		b.next, b.busy = nil, q != nil
		b.mu.Unlock()
		if q == nil {
			return
		}
		q.seq, q.err = b.Ask(ctx)
		close(q.done)
	}
}
