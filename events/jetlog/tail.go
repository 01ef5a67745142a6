package jetlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Message is an event as the tail delivers it, not decoded yet.
type Message struct {
	Subject  string
	Position events.Position
	Time     time.Time
	header   nats.Header
	body     []byte
}

// Recorded decodes the message.
func (m Message) Recorded() events.Recorded {
	return events.Decode(events.Envelope{Subject: m.Subject, Header: events.Header(m.header), Body: m.body}, m.Position, m.Time)
}

// TailOptions of a tail. Ungated tails deliver what is not durable yet; they are
// for a fold that is shown to nobody before the gate.
type TailOptions struct {
	Ungated bool
	// MaxBatch bounds one Next; 1,000 by default.
	MaxBatch int
}

// Tail follows one partition in order, from just after a sequence, for ever. For
// one reader.
type Tail struct {
	log  *Log
	p    *partition
	opts TailOptions
	it   jetstream.MessagesContext
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	ready   []Message
	last    uint64
	err     error
	changed chan struct{}
	room    chan struct{}
}

// Tail starts a tail after a sequence. A stream that ends before that sequence is
// not the one the caller followed: ErrStream.
func (l *Log) Tail(ctx context.Context, partition int, after uint64, opts TailOptions) (*Tail, error) {
	if opts.MaxBatch <= 0 {
		opts.MaxBatch = 1000
	}
	p := l.partitions[partition]
	head, err := l.head(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w", p.name, err)
	}
	if head < after {
		return nil, fmt.Errorf("%w: stream %s ends at %d, before %d that was read from it: it was restored or made anew; rebuild the projections",
			ErrStream, p.name, head, after)
	}
	cons, err := l.js.OrderedConsumer(ctx, p.name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w: %w", p.name, ErrUnavailable, err)
	}
	// Small pulls can stall nats.go 1.55 for a heartbeat under load (DESIGN §5).
	it, err := cons.Messages(jetstream.PullMaxMessages(2000), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w: %w", p.name, ErrUnavailable, err)
	}
	pump, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &Tail{
		log: l, p: p, opts: opts, it: it, stop: stop, done: make(chan struct{}), last: after,
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	go t.pump(pump)
	return t, nil
}

// Next gives the next events, at least one, in order. It blocks until there are
// some, ctx ends, or the tail fails.
func (t *Tail) Next(ctx context.Context) ([]Message, error) {
	for {
		t.mu.Lock()
		batch, err := t.ready, t.err
		if len(batch) > t.opts.MaxBatch {
			batch = batch[:t.opts.MaxBatch:t.opts.MaxBatch]
		}
		t.ready = t.ready[len(batch):]
		t.mu.Unlock()
		if len(batch) > 0 {
			signal(t.room)
			return batch, t.gated(ctx, batch)
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *Tail) gated(ctx context.Context, batch []Message) error {
	if t.opts.Ungated {
		return nil
	}
	return t.p.gate.wait(ctx, batch[len(batch)-1].Position.Seq)
}

// Close ends the tail and waits for its pump.
func (t *Tail) Close() {
	t.stop()
	t.it.Stop()
	<-t.done
}

func (t *Tail) pump(ctx context.Context) {
	defer close(t.done)
	for {
		m, err := t.it.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			t.fail(ErrClosed)
			return
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, nats.ErrConnectionClosed):
			t.fail(fmt.Errorf("tail %s: %w: %w", t.p.name, ErrUnavailable, err))
			return
		case err != nil:
			// A missed heartbeat, a leader change: the ordered consumer goes on from its
			// cursor, once it is known that the stream is still the same.
			if err := t.same(ctx); err != nil {
				t.fail(err)
				return
			}
			continue
		}
		if err := t.take(ctx, m); err != nil {
			t.fail(err)
			return
		}
	}
}

// same tells whether the stream is the one that the tail began on. A server that
// does not answer is waited for.
func (t *Tail) same(ctx context.Context) error {
	for {
		head, err := t.log.head(ctx, t.p)
		switch {
		case errors.Is(err, ErrStream):
			return err
		case err == nil && head < t.last:
			return fmt.Errorf("%w: stream %s went back to %d from %d: it was restored or made anew; rebuild the projections", ErrStream, t.p.name, head, t.last)
		case err == nil:
			return nil
		}
		select {
		case <-ctx.Done():
			return ErrClosed
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// take puts a message where Next finds it, and waits while a slow reader has
// enough.
func (t *Tail) take(ctx context.Context, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("tail %s: %w", t.p.name, err)
	}
	msg := Message{
		Subject: m.Subject(), Position: events.Position{Partition: t.p.number, Seq: meta.Sequence.Stream},
		Time: meta.Timestamp, header: m.Headers(), body: m.Data(),
	}
	for {
		t.mu.Lock()
		if len(t.ready) < 4*t.opts.MaxBatch {
			if msg.Position.Seq > t.last {
				t.last = msg.Position.Seq
				t.p.saw(t.last)
				t.ready = append(t.ready, msg)
			}
			t.mu.Unlock()
			signal(t.changed)
			return nil
		}
		t.mu.Unlock()
		select {
		case <-t.room:
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

func (t *Tail) fail(err error) {
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	signal(t.changed)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
