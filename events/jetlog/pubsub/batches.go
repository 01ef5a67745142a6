package pubsub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
)

// BatchSubscriber is the Watermill subscriber for projectors: one Watermill message is a batch of consecutive events of
// one partition. It emits the next batch only after this one was acked. A nacked batch comes again, after a pause that
// grows; so the order holds whatever fails. The topic is the stream's name.
type BatchSubscriber struct {
	log    *jetlog.Log
	inside inside.Log
	after  func(partition int) uint64
	max    int
	subs   subscriptions

	mu     sync.Mutex
	opened map[int]*jetlog.Tail
}

var _ message.Subscriber = (*BatchSubscriber)(nil)

// NewBatchSubscriber returns a subscriber on a log. Its batches hold at most most events, and begin after the sequence
// that after returns for a partition. It does no I/O.
func NewBatchSubscriber(log *jetlog.Log, after func(partition int) uint64, most int) *BatchSubscriber {
	return &BatchSubscriber{log: log, inside: log.Inside(), after: after, max: most, opened: map[int]*jetlog.Tail{}}
}

type batchKey struct{}

// MessageBatch returns the events of a message that a BatchSubscriber emitted, the one event of a Subscriber's message,
// and nil for any other message.
func MessageBatch(m *message.Message) []jetlog.Message {
	batch, _ := m.Context().Value(batchKey{}).([]jetlog.Message)
	return batch
}

// Subscribe follows a stream until ctx ends, the tail fails, or the subscriber is closed; the channel is then closed.
func (s *BatchSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	p, err := partitionOf(s.inside, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if err := s.Open(ctx, p.Number); err != nil {
		return nil, err
	}
	tail := s.take(p.Number)
	out := make(chan *message.Message)
	err = s.subs.begin(ctx, tail.Close, func(ctx context.Context) {
		defer close(out)
		s.emit(ctx, tail, emitter{out: out})
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return out, nil
}

// Open opens the tail of a partition ahead of Subscribe, so that a failure is seen before a Router runs: Watermill
// 1.5.1 leaks goroutines when Subscribe fails.
func (s *BatchSubscriber) Open(ctx context.Context, partition int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[partition] != nil {
		return nil
	}
	tail, err := s.log.Tail(ctx, partition, s.after(partition), jetlog.TailOptions{MaxBatch: s.max, Decode: true})
	if err != nil {
		return err
	}
	s.opened[partition] = tail
	return nil
}

func (s *BatchSubscriber) take(partition int) *jetlog.Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	tail := s.opened[partition]
	delete(s.opened, partition)
	return tail
}

// partitionOf returns the partition whose stream has a name.
func partitionOf(log inside.Log, stream string) (inside.Partition, error) {
	for k := range log.Layout.Partitions {
		if events.StreamName(k) == stream {
			return log.Partition(k)
		}
	}
	return inside.Partition{}, fmt.Errorf("%q is no stream of the log", stream)
}

// emit ends with ctx, or when the tail fails. The reader sees that the channel was closed.
func (s *BatchSubscriber) emit(ctx context.Context, tail *jetlog.Tail, e emitter) {
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return
		}
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 2*time.Second
		for e.deliver(ctx, message.NewMessage(watermill.NewShortUUID(), nil), batch) != acked {
			await.Pause(ctx, wait.NextBackOff())
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// Close ends all subscriptions and waits for them.
func (s *BatchSubscriber) Close() error {
	s.subs.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, tail := range s.opened {
		tail.Close()
		delete(s.opened, k)
	}
	return nil
}
