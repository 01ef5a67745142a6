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
	if !b.busy {
		b.busy = true
		// A question is not its first caller's: it goes on when that one gives up.
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

// serve asks until nobody waits. Each question ends by ask's own deadline.
func (b *barrier) serve(ctx context.Context) {
	for {
		b.mu.Lock()
		q := b.next
		b.next, b.busy = nil, q != nil
		b.mu.Unlock()
		if q == nil {
			return
		}
		q.seq, q.err = b.ask(ctx)
		close(q.done)
	}
}
