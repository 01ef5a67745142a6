package jetlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
)

// BatchSubscriber is the Watermill subscriber for projectors: one Watermill message
// is a batch of consecutive events of one partition, and the next is emitted only
// after it was acked. A nacked batch comes again, after a pause that grows; so the
// order holds whatever fails. The topic is the stream's name.
type BatchSubscriber struct {
	log   *Log
	after func(partition int) uint64
	max   int
	subs  subscriptions

	mu     sync.Mutex
	opened map[int]*Tail
}

var _ message.Subscriber = (*BatchSubscriber)(nil)

// NewBatchSubscriber makes a subscriber whose batches hold at most most events and
// begin after the sequence that after gives for a partition.
func (l *Log) NewBatchSubscriber(after func(partition int) uint64, most int) *BatchSubscriber {
	return &BatchSubscriber{log: l, after: after, max: most, opened: map[int]*Tail{}}
}

type batchKey struct{}

// MessageBatch gives the events of a message that a BatchSubscriber or a Subscriber
// (then one) emitted, nil for any other.
func MessageBatch(m *message.Message) []Message {
	batch, _ := m.Context().Value(batchKey{}).([]Message)
	return batch
}

// Subscribe follows a stream until ctx ends, the tail fails, or the subscriber is
// closed; the channel is then closed.
func (s *BatchSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	p, ok := s.log.stream(topic)
	if !ok {
		return nil, fmt.Errorf("subscribe: %q is no stream of the log", topic)
	}
	if err := s.Open(ctx, p.number); err != nil {
		return nil, err
	}
	tail := s.take(p.number)
	out := make(chan *message.Message)
	err := s.subs.begin(ctx, tail.Close, func(ctx context.Context) {
		defer close(out)
		s.emit(ctx, tail, emitter{out: out})
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return out, nil
}

// Open makes what Subscribe needs of a partition ahead of it, so that a failure is
// seen before a Router runs: Watermill 1.5.1 leaks goroutines when Subscribe fails.
func (s *BatchSubscriber) Open(ctx context.Context, partition int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[partition] != nil {
		return nil
	}
	tail, err := s.log.Tail(ctx, partition, s.after(partition), TailOptions{MaxBatch: s.max, Decode: true})
	if err != nil {
		return err
	}
	s.opened[partition] = tail
	return nil
}

func (s *BatchSubscriber) take(partition int) *Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	tail := s.opened[partition]
	delete(s.opened, partition)
	return tail
}

// stream gives the partition of a stream's name.
func (l *Log) stream(name string) (*partition, bool) {
	for _, p := range l.partitions {
		if p.name == name {
			return p, true
		}
	}
	return nil, false
}

// emit ends with ctx, or when the tail fails: the channel's end tells the reader.
func (s *BatchSubscriber) emit(ctx context.Context, tail *Tail, e emitter) {
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return
		}
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 2*time.Second
		for e.deliver(ctx, message.NewMessage(watermill.NewShortUUID(), nil), batch) != acked {
			pause(ctx, wait.NextBackOff())
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
