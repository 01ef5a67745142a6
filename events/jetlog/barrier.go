package jetlog

import (
	"context"
	"sync"
)

// barrier asks the leader for the stream's last sequence once for all reads that
// wait (etcd's ReadIndex): a question that began before a read came does not serve
// it, the next one serves all that came meanwhile.
type barrier struct {
	ask  func(context.Context) (uint64, error)
	mu   sync.Mutex
	next *question
	busy bool
}

type question struct {
	done chan struct{}
	seq  uint64
	err  error
}

// wait gives a sequence that was the last at some time after the call began.
func (b *barrier) wait(ctx context.Context) (uint64, error) {
	b.mu.Lock()
	if b.next == nil {
		b.next = &question{done: make(chan struct{})}
	}
	q := b.next
	lead := !b.busy
	b.busy = true
	b.mu.Unlock()
	if lead {
		b.serve(ctx)
	}
	select {
	case <-q.done:
		return q.seq, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// serve answers the waiting question in the caller's time, and hands later ones to
// a goroutine that ends with the last of them.
func (b *barrier) serve(ctx context.Context) {
	b.mu.Lock()
	q := b.next
	b.next = nil
	b.mu.Unlock()
	q.seq, q.err = b.ask(ctx)
	close(q.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.busy = false
		return
	}
	go b.serve(context.WithoutCancel(ctx))
}
