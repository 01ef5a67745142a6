package pubsub

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/turnledger/turnledger/events/jetlog"
)

// subscriptions are the running subscriptions of one Watermill subscriber. The zero value is open.
type subscriptions struct {
	mu      sync.Mutex
	closed  bool
	cancels map[*context.CancelFunc]struct{}
	open    sync.WaitGroup
}

// begin runs a subscription until ctx ends or all subscriptions are closed. After close it fails with jetlog.ErrClosed.
func (s *subscriptions) begin(ctx context.Context, run func(context.Context)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return jetlog.ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	if s.cancels == nil {
		s.cancels = map[*context.CancelFunc]struct{}{}
	}
	s.cancels[&cancel] = struct{}{}
	s.open.Go(func() {
		run(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, &cancel)
	})
	return nil
}

// close ends all subscriptions and waits for them. Idempotent.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	for cancel := range s.cancels {
		(*cancel)()
	}
	s.mu.Unlock()
	s.open.Wait()
}

// verdict is a reader's answer to a message.
type verdict int

const (
	acked verdict = iota
	nacked
	// unheard: the subscription ended before the reader answered.
	unheard
)

// emitter hands messages to one reader, one after the other. While the reader has a message, the emitter calls working
// once in every period, unless working is nil.
type emitter struct {
	out     chan<- *message.Message
	every   time.Duration
	working func()
}

// deliver emits a message with its events and waits for the verdict. The message's context ends with the verdict.
func (e emitter) deliver(ctx context.Context, m *message.Message, batch any) verdict {
	mctx, done := context.WithCancel(context.WithValue(ctx, batchKey{}, batch))
	defer done()
	m.SetContext(mctx)
	var tick <-chan time.Time
	if e.working != nil {
		t := time.NewTicker(e.every)
		defer t.Stop()
		tick = t.C
	}
	for out := e.out; ; {
		select {
		case out <- m:
			out = nil // a nil channel: the message is sent once
		case <-m.Acked():
			return acked
		case <-m.Nacked():
			return nacked
		case <-tick:
			e.working()
		case <-ctx.Done():
			select {
			case <-m.Acked(): // acked at the last moment
				return acked
			default:
				return unheard
			}
		}
	}
}
