package pubsub

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

// BatchSubscriber is the Watermill subscriber for projectors: one Watermill message is a batch of consecutive events of
// one partition. It emits the next batch only after this one was acked. A nacked batch comes again, after a pause that
// grows; so the order holds whatever fails.
type BatchSubscriber struct {
	tail *jetlog.Tail
	subs subscriptions
}

var _ message.Subscriber = (*BatchSubscriber)(nil)

// NewBatchSubscriber returns a subscriber that emits the batches of a tail. The tail is opened before a Router runs,
// since Watermill 1.5.1 leaks goroutines when Subscribe fails.
func NewBatchSubscriber(tail *jetlog.Tail) *BatchSubscriber { return &BatchSubscriber{tail: tail} }

type batchKey struct{}

// MessageBatch returns the events of a message that a BatchSubscriber emitted, the one event of a Subscriber's message,
// and nil for any other message.
func MessageBatch(m *message.Message) []jetlog.Message {
	batch, _ := m.Context().Value(batchKey{}).([]jetlog.Message)
	return batch
}

// Subscribe emits, whatever the topic, until ctx ends, the tail fails, or the subscriber is closed; the channel is then
// closed. There is one subscription at a time.
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
		batch, err := s.tail.Next(ctx)
		if err != nil {
			return
		}
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 2*time.Second
		for e.deliver(ctx, message.NewMessage(watermill.NewShortUUID(), nil), batch) != acked {
			pause.For(ctx, wait.NextBackOff())
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// Close ends the subscription and waits for it, and closes the tail.
func (s *BatchSubscriber) Close() error {
	s.subs.close()
	s.tail.Close()
	return nil
}
