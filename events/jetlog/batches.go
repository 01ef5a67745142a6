package jetlog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events"
)

// BatchSubscriber is the Watermill subscriber for projectors: one Watermill message
// is a batch of consecutive events of one partition, and the next is emitted only
// after it was acked. A nacked batch comes again, after a pause that grows; so the
// order holds whatever fails. The topic is the stream's name.
type BatchSubscriber struct {
	log   *Log
	after func(partition int) uint64
	max   int

	closing chan struct{}
	close   sync.Once
	open    sync.WaitGroup

	mu     sync.Mutex
	opened map[int]*Tail
}

var _ message.Subscriber = (*BatchSubscriber)(nil)

// NewBatchSubscriber makes a subscriber whose batches hold at most most events and
// begin after the sequence that after gives for a partition.
func (l *Log) NewBatchSubscriber(after func(partition int) uint64, most int) *BatchSubscriber {
	return &BatchSubscriber{log: l, after: after, max: most, closing: make(chan struct{}), opened: map[int]*Tail{}}
}

type batchKey struct{}

// MessageBatch gives the events of a message that a BatchSubscriber emitted, nil for
// any other.
func MessageBatch(m *message.Message) []Message {
	batch, _ := m.Context().Value(batchKey{}).([]Message)
	return batch
}

// Subscribe follows a stream until ctx ends or the subscriber is closed; the
// channel is then closed.
func (s *BatchSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	k, err := strconv.Atoi(strings.TrimPrefix(topic, "TURNS-"))
	if err != nil || k < 0 || k >= s.log.Partitions() || events.StreamName(k) != topic {
		return nil, fmt.Errorf("subscribe: %q is no stream of the log", topic)
	}
	if err := s.Open(ctx, k); err != nil {
		return nil, err
	}
	s.mu.Lock()
	tail := s.opened[k]
	delete(s.opened, k)
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan *message.Message)
	s.open.Add(1)
	go func() {
		defer s.open.Done()
		defer close(out)
		defer tail.Close()
		defer cancel()
		s.emit(ctx, tail, out)
	}()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
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
	tail, err := s.log.Tail(ctx, partition, s.after(partition), TailOptions{MaxBatch: s.max})
	if err != nil {
		return err
	}
	s.opened[partition] = tail
	return nil
}

// emit ends with ctx, or when the tail fails: the channel's end tells the reader.
func (s *BatchSubscriber) emit(ctx context.Context, tail *Tail, out chan<- *message.Message) {
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return
		}
		pause := backoff.NewExponentialBackOff()
		pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 2*time.Second
		for !s.deliver(ctx, batch, out) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause.NextBackOff()):
			}
		}
	}
}

// deliver emits a batch and tells whether it was acked.
func (s *BatchSubscriber) deliver(ctx context.Context, batch []Message, out chan<- *message.Message) bool {
	m := message.NewMessage(watermill.NewShortUUID(), nil)
	mctx, done := context.WithCancel(context.WithValue(ctx, batchKey{}, batch))
	defer done()
	m.SetContext(mctx)
	select {
	case out <- m:
	case <-ctx.Done():
		return false
	}
	select {
	case <-m.Acked():
		return true
	case <-m.Nacked():
		return false
	case <-ctx.Done():
		return false
	}
}

// Close ends all subscriptions and waits for them.
func (s *BatchSubscriber) Close() error {
	s.close.Do(func() { close(s.closing) })
	s.open.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tail := range s.opened {
		tail.Close()
	}
	s.opened = map[int]*Tail{}
	return nil
}
