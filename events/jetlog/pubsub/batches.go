package pubsub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

// Batches brings events of one partition, in order. A jetlog.Tail is one.
type Batches[E any] interface {
	// Next returns the next events, at least one, and blocks until there are some or ctx ends.
	Next(ctx context.Context) ([]E, error)
	Close()
}

// BatchSubscriber is the Watermill subscriber for projectors: one Watermill message is a batch of consecutive events of
// one partition. It emits the next batch only after the reader acked this one. It emits a nacked batch again, after a
// pause that grows. So the order holds whatever fails.
type BatchSubscriber struct {
	next  func(context.Context) (any, error)
	close func()
	subs  subscriptions
	err   error
}

var _ message.Subscriber = (*BatchSubscriber)(nil)

// NewBatchSubscriber returns a subscriber that emits the batches of a tail, or of something like one. The tail is
// opened before a Router runs, since Watermill 1.5.1 leaks goroutines when Subscribe fails.
func NewBatchSubscriber[E any](in Batches[E]) *BatchSubscriber {
	return &BatchSubscriber{
		next: func(ctx context.Context) (any, error) { return in.Next(ctx) }, close: sync.OnceFunc(in.Close),
	}
}

type batchKey struct{}

// MessageBatch returns the events of a message that a BatchSubscriber of a tail emitted, the one event of a
// Subscriber's message, and nil for any other message.
func MessageBatch(m *message.Message) []jetlog.Message { return BatchOf[jetlog.Message](m) }

// BatchOf returns the events of a message that a BatchSubscriber of such events emitted, and nil for any other message.
func BatchOf[E any](m *message.Message) []E {
	batch, _ := m.Context().Value(batchKey{}).([]E)
	return batch
}

// Subscribe emits batches, whatever the topic, until ctx ends, the tail fails, or the subscriber is closed. Then it
// closes the channel. There is one subscription at a time.
func (s *BatchSubscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	err := s.subs.begin(ctx, func(ctx context.Context) {
		defer close(out)
		s.emit(ctx, emitter{out: out})
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return out, nil
}

// emit emits batches until ctx ends or the tail fails. It emits a batch again until the reader acknowledges it.
func (s *BatchSubscriber) emit(ctx context.Context, e emitter) {
	for {
		batch, err := s.next(ctx)
		if err != nil {
			s.err = err
			return
		}
		wait := pause.Growing(20*time.Millisecond, 2*time.Second)
		for e.deliver(ctx, message.NewMessage(watermill.NewShortUUID(), nil), batch) != acked {
			if !pause.For(ctx, wait.NextBackOff()) {
				return
			}
		}
	}
}

// Close ends the subscription and waits for it, and closes the tail once. A Router closes its subscribers while whoever
// made them may do the same.
func (s *BatchSubscriber) Close() error {
	s.subs.close()
	s.close()
	return nil
}

// Err returns the error that ended the last subscription. The subscriber must be closed.
func (s *BatchSubscriber) Err() error { return s.err }
