package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Message is an event as the tail delivers it.
type Message struct {
	Subject  string
	Position events.Position
	Time     time.Time
	header   nats.Header
	body     []byte
	decoded  *events.Recorded
	// size in memory, about.
	size int
}

func recordedMessage(p *partition, m *nats.Msg, meta *nats.MsgMetadata) Message {
	return Message{
		Subject: m.Subject, Position: events.Position{Partition: p.number, Seq: meta.Sequence.Stream},
		Time: meta.Timestamp, header: m.Header, body: m.Data,
	}
}

// Recorded decodes the message, unless the tail did.
func (m Message) Recorded() events.Recorded {
	if m.decoded != nil {
		return *m.decoded
	}
	return m.decode()
}

// Decoded is Recorded without a copy, to be read only.
func (m Message) Decoded() *events.Recorded {
	if m.decoded != nil {
		return m.decoded
	}
	e := m.decode()
	return &e
}

func (m Message) decode() events.Recorded {
	return events.Decode(events.Envelope{Subject: m.Subject, Header: events.Header(m.header), Body: m.body}, m.Position, m.Time)
}

// Type is the event type that the message's header states, whatever its body says.
func (m Message) Type() string {
	if m.decoded != nil {
		return m.decoded.Type
	}
	return events.Header(m.header).Value(events.HeaderType)
}

// ID is the event id that the message's header states.
func (m Message) ID() string {
	if m.decoded != nil {
		return m.decoded.ID
	}
	return events.Header(m.header).Value(events.HeaderID)
}

// TailOptions of a tail. Ungated tails deliver what is not durable yet; they are
// for a fold that is shown to nobody before the gate.
type TailOptions struct {
	Ungated bool
	// Decode decodes ahead, while the reader is busy with what it has.
	Decode bool
	// HeadersOnly leaves the bodies where they are; Log.At reads one that is needed.
	HeadersOnly bool
	// Subject, where not empty, is the only one followed.
	Subject string
	// MaxBatch bounds one Next; 1,000 by default.
	MaxBatch int
}

// Tail follows one partition in order, from just after a sequence, for ever: each
// event once, whatever becomes of connections, leaders and consumers meanwhile. For
// one reader.
type Tail struct {
	log  *Log
	p    *partition
	opts TailOptions
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	ready   []Message
	bytes   int
	last    uint64
	shown   shown
	err     error
	changed chan struct{}
	room    chan struct{}
}

// Tail starts a tail after a sequence; it is to be closed. A stream that ends
// before that sequence is not the one the caller followed: ErrStream.
func (l *Log) Tail(ctx context.Context, partition int, after uint64, opts TailOptions) (*Tail, error) {
	if opts.MaxBatch <= 0 {
		opts.MaxBatch = 1000
	}
	p, err := l.partition(partition)
	if err != nil {
		return nil, err
	}
	t := &Tail{
		log: l, p: p, opts: opts, done: make(chan struct{}), last: after,
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	in, err := t.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w", p.name, err)
	}
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	go t.run(ctx, in)
	return t, nil
}

// Next gives the next events, at least one, in order. It blocks until there are
// some, ctx ends, or the tail fails. What an error kept back is given by the next
// call.
func (t *Tail) Next(ctx context.Context) ([]Message, error) {
	for {
		batch, err := t.peek()
		if len(batch) > 0 {
			if err := t.gated(ctx, batch); err != nil {
				return nil, err
			}
			t.drop(batch)
			return batch, nil
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

func (t *Tail) peek() ([]Message, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.ready), t.opts.MaxBatch)
	return t.ready[:n:n], t.err
}

func (t *Tail) gated(ctx context.Context, batch []Message) error {
	if t.opts.Ungated {
		return nil
	}
	return t.p.gate.wait(ctx, batch[len(batch)-1].Position.Seq)
}

func (t *Tail) drop(batch []Message) {
	t.mu.Lock()
	t.ready = t.ready[len(batch):]
	for _, m := range batch {
		t.bytes -= m.size
	}
	t.mu.Unlock()
	signal(t.room)
}

// Close ends the tail and waits for it.
func (t *Tail) Close() {
	t.stop()
	<-t.done
}

// run follows one consumer after another. Each begins after the last event taken,
// and only on the stream that the tail began on.
func (t *Tail) run(ctx context.Context, in *pull) {
	defer close(t.done)
	var patience patience
	for {
		before := t.last
		err := t.follow(ctx, in)
		in.discard()
		if t.last > before {
			patience = 0
		}
		for err != nil {
			if err := t.over(ctx, err); err != nil {
				t.fail(err)
				return
			}
			patience.wait(ctx)
			in, err = t.connect(ctx)
		}
	}
}

// over gives the error that ends the tail, nil for one after which it goes on.
func (t *Tail) over(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ErrClosed
	case errors.Is(err, ErrStream):
		return fmt.Errorf("tail %s: %w", t.p.name, err)
	case t.log.nc.IsClosed():
		return fmt.Errorf("tail %s: %w: %w", t.p.name, ErrUnavailable, err)
	}
	return nil
}

// connect makes a consumer after the last event taken. The stream is looked at
// before and after: on one made anew a consumer would wait in silence until the new
// stream is as long as the old one was, and skip all before.
func (t *Tail) connect(ctx context.Context) (*pull, error) {
	if err := t.same(ctx); err != nil {
		return nil, err
	}
	name, err := t.consumer(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.same(ctx); err != nil {
		return nil, err
	}
	return t.log.openPull(t.p.name, name, tailPull)
}

// consumer makes a consumer after the last event taken. One that nobody has answered for
// may have been given to a server that is gone, or asked of one: another is made.
func (t *Tail) consumer(ctx context.Context) (name string, err error) {
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, consumerTime)
		made, err := t.log.js.CreateConsumer(once, t.p.name, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.last + 1, AckPolicy: jetstream.AckNonePolicy,
			InactiveThreshold: time.Minute, Replicas: 1, MemoryStorage: true,
			HeadersOnly: t.opts.HeadersOnly, FilterSubject: t.opts.Subject,
		})
		cancel()
		switch {
		case err == nil:
			return made.CachedInfo().Name, nil
		case !errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil, time.Since(began) > 5*consumerTime:
			return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// consumerTime is how long a server may take to make a consumer.
const consumerTime = time.Second

// tailPull is how many events one request asks for.
const tailPull = 1000

// same holds the stream against the one that the tail began on. With replicas a
// leader that ends too early may be one that was deposed without knowing yet.
func (t *Tail) same(ctx context.Context) error {
	for began := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		head, err := t.log.head(ctx, t.p)
		switch {
		case err != nil:
			return err
		case head >= t.last:
			return t.log.stands(ctx, t.p, &t.shown)
		case t.p.shared.Load() && time.Since(began) < deposedTime:
			continue
		}
		return fmt.Errorf("%w: stream %s ends at %d, before %d that was read from it: it was restored or made anew: start this process again, and then rebuild the projections: turnledger projections rebuild NAME",
			ErrStream, t.p.name, head, t.last)
	}
}

// deposedTime is more than a leader takes to learn that it was deposed.
const deposedTime = 10 * time.Second

// follow takes events of one consumer until it is lost.
func (t *Tail) follow(ctx context.Context, in *pull) error {
	for expected := uint64(1); ; expected++ {
		m, err := in.next(ctx)
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != expected {
			return errLost
		}
		if err := t.take(ctx, m, meta); err != nil {
			return err
		}
	}
}

// take puts an event where Next finds it, and waits while a slow reader has
// enough.
func (t *Tail) take(ctx context.Context, m *nats.Msg, meta *nats.MsgMetadata) error {
	msg := recordedMessage(t.p, m, meta)
	msg.size = len(m.Data) + perMessage
	bytes := len(m.Data)
	if t.opts.HeadersOnly {
		bytes, _ = strconv.Atoi(m.Header.Get(nats.MsgSize))
	}
	if t.opts.Decode {
		e := msg.Recorded()
		msg.decoded, msg.header, msg.body = &e, nil, nil
	}
	for {
		t.mu.Lock()
		if len(t.ready) < 4*t.opts.MaxBatch && t.bytes < maxReady {
			if msg.Position.Seq > t.last {
				if t.opts.Subject == "" {
					t.p.identities.saw(t.last, msg.Position.Seq, msg.Subject)
				}
				t.last = msg.Position.Seq
				t.p.saw(t.last)
				t.shown.note(t.last, msg.Time, bytes)
				t.p.shown.note(t.last, msg.Time, bytes)
				t.ready = append(t.ready, msg)
				t.bytes += msg.size
			}
			t.mu.Unlock()
			signal(t.changed)
			return nil
		}
		t.mu.Unlock()
		select {
		case <-t.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	// maxReady bounds the bytes that wait for a slow reader.
	maxReady = 32 << 20
	// perMessage is what a message takes beside its body.
	perMessage = 1 << 10
)

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
