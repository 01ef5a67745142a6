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

	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/room"
)

// TailOptions say how a tail delivers.
type TailOptions struct {
	// Ungated delivers events before they are durable. It is for folds whose results are shown only after the gate.
	Ungated bool
	// Decode decodes events ahead, while the reader is busy with earlier ones.
	Decode bool
	// HeadersOnly leaves out the bodies. Log.At returns an event with its body.
	HeadersOnly bool
	// Subject, if not empty, is the only subject that the tail follows.
	Subject string
	// MaxBatch bounds the events that one Next returns; 1,000 by default.
	MaxBatch int
}

// Tail follows one partition in order, from just after a sequence, for ever. It delivers each event once, even if
// connections, leaders and consumers are lost meanwhile. Only one goroutine may read from it.
type Tail struct {
	log  *Log
	p    *partition
	opts TailOptions
	stop context.CancelFunc
	done chan struct{}

	// tally counts what the open request may bring, what is ready, and what the reader has in hand.
	tally *room.Tally
	// asked is what was taken for the open request, and came what it has brought. pending is how many events the log
	// has after these. They belong to run.
	asked, came int
	pending     uint64
	// inHand is what the last Next has returned. It belongs to the reader.
	inHand int

	mu    sync.Mutex
	ready []Message
	// hungry: the reader waits, and there is nothing for it.
	hungry  bool
	last    uint64
	witness witness
	err     error
	// arrived is when the newest event came.
	arrived time.Time
	changed chan struct{}
	room    chan struct{}
}

// Tail opens a tail after a sequence. The caller must close it. If the stream ends before that sequence, it is not the
// stream that the caller followed, and Tail fails with ErrStream.
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
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1), tally: l.room.Tally(),
	}
	if opts.Ungated {
		t.tally = room.New(ungatedBytes).Tally()
	}
	in, err := t.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w", p.name, err)
	}
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	go t.run(ctx, in)
	return t, nil
}

// Next returns the next events, at least one, in order. It blocks until there are events, ctx ends, or the tail fails.
// If Next fails while events wait to be durable, the next call returns these events. Events that belong together
// (Message.Continues) come together, even if the batch is then a few events longer than MaxBatch. With the next call
// the reader lets go of the last batch.
func (t *Tail) Next(ctx context.Context) ([]Message, error) {
	t.tally.Grow(-t.inHand)
	t.inHand = 0
	for {
		batch, held, err := t.peek()
		if len(batch) > 0 {
			if !t.opts.Ungated {
				if err := t.p.gate.Wait(ctx, await.Mark(batch[len(batch)-1].Position.Seq)); err != nil {
					return nil, err
				}
			}
			t.drop(batch)
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-t.changed:
		case <-held:
			t.release(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// peek returns the next batch. If there is only a link that waits for the next event of its atomic batch, it returns a
// channel that says when that has taken too long.
func (t *Tail) peek() (batch []Message, held <-chan time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.ready), t.opts.MaxBatch)
	if n > 0 && n < len(t.ready) && t.ready[n-1].Continues {
		n++
	}
	if n > 0 && t.ready[n-1].batched {
		n--
	}
	if n == 0 && len(t.ready) > 0 {
		held = time.After(time.Until(t.arrived.Add(batchTime)))
	}
	if t.hungry = n == 0; t.hungry {
		signal(t.room)
	}
	return t.ready[:n:n], held, t.err
}

// batchTime is how long the next event of an atomic batch may take before the tail asks whether there is one. A server
// that stores a batch has the others wait for all of it, so the answer is not that of a moment.
const batchTime = time.Second

// release lets go of an event whose atomic batch ends with it: a copy of a stream may have been made in the middle.
func (t *Tail) release(ctx context.Context) {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	m, err := t.log.message(ctx, t.p, map[string]any{"seq": last + 1, "next_by_subj": ">"})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arrived = time.Now(); err == nil && m == nil && t.last == last && len(t.ready) > 0 {
		t.ready[len(t.ready)-1].batched = false
	}
}

func (t *Tail) drop(batch []Message) {
	t.mu.Lock()
	t.ready = t.ready[len(batch):]
	t.mu.Unlock()
	for i := range batch {
		t.inHand += batch[i].size
	}
	signal(t.room)
}

// Close ends the tail and waits for it.
func (t *Tail) Close() {
	t.stop()
	<-t.done
	t.tally.Leave()
}

// run follows one consumer after another. Each begins after the last event taken, and only on the stream that the tail
// began on.
func (t *Tail) run(ctx context.Context, in *wire.Pull) {
	defer close(t.done)
	wait := pause.Growing(5*time.Millisecond, time.Second)
	for {
		before := t.last
		err := t.follow(ctx, in)
		in.Discard()
		t.settle()
		if t.last > before {
			wait.Reset()
		}
		for err != nil {
			if err := t.endedBy(ctx, err); err != nil {
				t.fail(err)
				return
			}
			pause.For(ctx, wait.NextBackOff())
			in, err = t.connect(ctx)
		}
	}
}

// endedBy returns the error that ends the tail, or nil if the tail goes on.
func (t *Tail) endedBy(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ErrClosed
	case errors.Is(err, ErrStream):
		return fmt.Errorf("tail %s: %w", t.p.name, err)
	case t.log.wire.NC.IsClosed():
		return Unavailable("tail "+t.p.name, err)
	}
	return nil
}

// connect makes a consumer after the last event taken. It checks the stream before and after. If the stream was made
// anew, a consumer would wait in silence until the stream is as long as the old one was, and skip all events before.
func (t *Tail) connect(ctx context.Context) (*wire.Pull, error) {
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
	return t.log.wire.OpenPull(t.p.name, name, tailPull, t.ask)
}

// consumer makes a consumer after the last event taken. If there is no answer, the server that got the request may be
// gone, and consumer makes another one.
func (t *Tail) consumer(ctx context.Context) (name string, err error) {
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, consumerTime)
		made, err := t.log.wire.JS.CreateConsumer(once, t.p.name, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.last + 1,
			AckPolicy:         jetstream.AckNonePolicy,
			InactiveThreshold: time.Minute, Replicas: 1, MemoryStorage: true,
			HeadersOnly: t.opts.HeadersOnly, FilterSubject: t.opts.Subject,
		})
		cancel()
		switch {
		case err == nil:
			t.pending = made.CachedInfo().NumPending
			return made.CachedInfo().Name, nil
		case !errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil, time.Since(began) > 5*consumerTime:
			return "", Unavailable("", err)
		}
	}
}

// consumerTime is how long a server may take to make a consumer.
const consumerTime = time.Second

const (
	// tailPull is how many events one request asks for at most, and pullBytes what these may take in memory.
	tailPull  = 1000
	pullBytes = 4 << 20
	// ungatedBytes is the room of a tail that nobody reads slowly.
	ungatedBytes = 64 << 20
)

// ask returns how large the next request may be. It waits for room, unless the reader waits for events. At the log's
// end, an open request takes no more than the floor.
func (t *Tail) ask(ctx context.Context) (events, bytes int, err error) {
	t.settle()
	most := pullBytes
	if t.pending == 0 && !t.opts.Ungated {
		most = room.Floor
	}
	for {
		t.mu.Lock()
		hungry := t.hungry
		t.mu.Unlock()
		if t.asked = t.tally.Take(most, hungry); t.asked > 0 {
			return min(tailPull, t.asked/2/perMessage), t.asked / 4, nil // a decoded event has its texts twice
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// settle counts what the last request has brought instead of what it might have.
func (t *Tail) settle() {
	t.tally.Grow(t.came - t.asked)
	t.asked, t.came = 0, 0
}

// follow takes events from one consumer until the consumer is lost.
func (t *Tail) follow(ctx context.Context, in *wire.Pull) error {
	for expected := uint64(1); ; expected++ {
		m, err := in.Next(ctx)
		if err != nil {
			return err
		}
		msg, err := MessageOf(t.p.number, m)
		switch {
		case err != nil:
			return err
		case msg.delivered != expected:
			return wire.ErrLost
		}
		t.pending = msg.pending
		t.take(msg)
	}
}

// take queues an event for Next.
func (t *Tail) take(msg Message) {
	bytes := len(msg.body)
	msg.size = bytes + perMessage
	if t.opts.HeadersOnly {
		bytes, _ = strconv.Atoi(msg.header.Get(nats.MsgSize))
	}
	if t.opts.Decode {
		msg.Decode()
	}
	t.mu.Lock()
	if msg.Position.Seq > t.last {
		if t.opts.Subject == "" {
			t.p.identities.saw(t.last, msg.Position.Seq, msg.Subject)
		}
		t.last = msg.Position.Seq
		t.p.saw(t.last)
		t.witness.note(t.last, msg.Time, bytes)
		t.p.witness.note(t.last, msg.Time, bytes)
		t.queue(msg)
	}
	t.mu.Unlock()
	signal(t.changed)
}

// queue adds an event to those that Next returns. An event that was returned already met its next one.
func (t *Tail) queue(msg Message) {
	if t.opts.Subject != "" {
		msg.unfinished = unfinished{} // the tail may not see the next event of the batch
	}
	if n := len(t.ready); n > 0 && t.ready[n-1].batched {
		t.ready[n-1].meets(&msg)
	}
	t.ready = append(t.ready, msg)
	t.came += msg.size
	t.hungry = false
	t.arrived = time.Now()
}

// perMessage is the memory that a message takes beside its body, in bytes: its headers twice, as they came and as
// strings, and the structs of the message, the event and the fact.
const perMessage = 1536

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
