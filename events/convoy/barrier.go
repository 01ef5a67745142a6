package convoy

import (
	"context"
	"sync"
)

// Barrier asks one question for all callers that wait for its answer (etcd's ReadIndex). A caller can't use a question
// that began before the call; the next question serves all callers that came meanwhile. Set Ask before the first Wait.
type Barrier[T any] struct {
	Ask func(context.Context) (T, error)

	mu   sync.Mutex
	next *question[T]
	busy bool
}

type question[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

// Wait returns an answer that was true at some moment after the call began. If ctx ends first, it returns ctx's error.
func (b *Barrier[T]) Wait(ctx context.Context) (answer T, err error) {
	b.mu.Lock()
	if b.next == nil {
		b.next = &question[T]{done: make(chan struct{})}
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
		return q.answer, q.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// serve asks until nobody waits. Each question ends by Ask's own deadline.
func (b *Barrier[T]) serve(ctx context.Context) {
	for {
		b.mu.Lock()
		q := b.next
		b.next, b.busy = nil, q != nil
		b.mu.Unlock()
		if q == nil {
			return
		}
		q.answer, q.err = b.Ask(ctx)
		close(q.done)
	}
}
