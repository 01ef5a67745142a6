package jetlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Metadata that a Subscriber adds to an event's headers: its position ("0:42"), and
// when the log recorded it (RFC 3339).
const (
	MetadataPosition   = "turnledger-position"
	MetadataRecordedAt = "turnledger-recorded-at"
)

// SubscriberConfig of a Subscriber.
type SubscriberConfig struct {
	// Group names who reads: [A-Za-z0-9_-], at most 64. The log remembers what a group
	// has acked of a topic, for ever; subscriptions of one group share its events. A
	// new group begins with the first event.
	Group string
	// Sessions makes the topics session ids. By default they are the names of the
	// log's streams (events.StreamName), each with all that its partition holds.
	Sessions bool
	// AckWait is how long a subscriber that died keeps an event from its group; 30 s by
	// default. One that is slow keeps it as long as it needs.
	AckWait time.Duration
	// NackPause is waited before a nacked event comes again; 100 ms by default.
	NackPause time.Duration
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	if c.AckWait <= 0 {
		c.AckWait = 30 * time.Second
	}
	if c.NackPause <= 0 {
		c.NackPause = 100 * time.Millisecond
	}
	if !groupName.MatchString(c.Group) {
		return c, errors.New("a subscriber's group must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return c, nil
}

// Subscriber is the Watermill subscriber for third-party projectors and side
// effects: one message is one event, durable in the log. In a group and topic only
// one event is under way at a time, in log order: the next comes after it was acked,
// and a nacked one comes again before it. Each comes at least once.
//
// The message's UUID is the event id, the metadata are the event's headers (of one
// with several values the first) without the server's own, and MetadataPosition and
// MetadataRecordedAt. MessageBatch gives the event itself.
type Subscriber struct {
	log  *Log
	cfg  SubscriberConfig
	subs subscriptions
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber makes a subscriber; it does no I/O.
func (l *Log) NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Subscriber{log: l, cfg: cfg}, nil
}

// Subscribe follows a topic until ctx ends, the subscriber or the connection is
// closed, or the stream was made anew; the channel is then closed. What is not acked by then comes again, at once, to whoever
// subscribes next.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	p, consumer, err := s.consumer(topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	r := &groupReader{Subscriber: s, p: p, consumer: consumer}
	if r.in, err = r.connect(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	out := make(chan *message.Message)
	r.out = out
	if err := s.subs.begin(ctx, r.end, r.run); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return out, nil
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.subs.close()
	return nil
}

// consumer gives the durable consumer of a topic.
func (s *Subscriber) consumer(topic string) (*partition, jetstream.ConsumerConfig, error) {
	cfg := jetstream.ConsumerConfig{
		Durable: s.cfg.Group, AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.cfg.AckWait,
		// One at a time is what keeps the order, also over the members of the group.
		MaxAckPending: 1,
	}
	if !s.cfg.Sessions {
		p, ok := s.log.stream(topic)
		if !ok {
			return nil, cfg, fmt.Errorf("%q is no stream of the log", topic)
		}
		return p, cfg, nil
	}
	if err := events.ValidID(topic); err != nil {
		return nil, cfg, fmt.Errorf("session id: %w", err)
	}
	sum := sha256.Sum256([]byte(topic))
	cfg.Durable += "-" + hex.EncodeToString(sum[:16])
	cfg.FilterSubject = events.SessionSubject(topic)
	return s.log.of(topic), cfg, nil
}

// groupReader is one subscription.
type groupReader struct {
	*Subscriber
	p        *partition
	consumer jetstream.ConsumerConfig
	in       *pull
	out      chan<- *message.Message
}

// connect makes the consumer where it is missing, and a reader of it.
func (r *groupReader) connect(ctx context.Context) (*pull, error) {
	if _, err := r.log.js.CreateOrUpdateConsumer(ctx, r.p.name, r.consumer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return r.log.openPull(r.p.name, r.consumer.Durable, 1)
}

// run emits until ctx ends.
func (r *groupReader) run(ctx context.Context) {
	defer close(r.out)
	var patience patience
	for ctx.Err() == nil {
		m, err := r.in.next(ctx)
		if err == nil {
			patience = 0
			r.emit(ctx, m)
			continue
		}
		for err != nil && ctx.Err() == nil {
			patience.wait(ctx)
			if err = r.revive(ctx); errors.Is(err, ErrStream) || r.log.nc.IsClosed() {
				return
			}
		}
	}
}

// revive makes the consumer again, if it is gone with a server that held it, on the
// stream that the log was opened on.
func (r *groupReader) revive(ctx context.Context) error {
	if _, err := r.log.head(ctx, r.p); err != nil {
		return err
	}
	_, err := r.log.js.CreateOrUpdateConsumer(ctx, r.p.name, r.consumer)
	return err
}

// end gives back what the server sent and nobody will see.
func (r *groupReader) end() {
	for _, m := range r.in.drain() {
		_ = m.Respond(nak(0))
	}
}

func (r *groupReader) emit(ctx context.Context, m *nats.Msg) {
	event, err := r.event(ctx, m)
	if err != nil {
		_ = m.Respond(nak(r.cfg.NackPause))
		return
	}
	working := func() { _ = m.Respond([]byte("+WPI")) }
	e := emitter{out: r.out, every: r.cfg.AckWait / 3, working: working}
	switch e.deliver(ctx, event.watermill(), []Message{event}) {
	case acked:
		_ = m.Respond([]byte("+ACK"))
	case nacked:
		_ = m.Respond(nak(r.cfg.NackPause))
	case unheard:
		_ = m.Respond(nak(0))
	}
}

// event gives a delivered event when it is durable.
func (r *groupReader) event(ctx context.Context, m *nats.Msg) (Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, err
	}
	event := recordedMessage(r.p, m, meta)
	return event, r.p.gate.wait(ctx, event.Position.Seq)
}

func nak(after time.Duration) []byte {
	if after == 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay":%d}`, after.Nanoseconds())
}

// watermill gives an event as a message that pipelines can read.
func (m Message) watermill() *message.Message {
	e := m.Recorded()
	id := e.ID
	if id == "" {
		id = m.Position.String()
	}
	out := message.NewMessage(id, m.body)
	for name, values := range m.header {
		if len(values) > 0 && !reserved(name) {
			out.Metadata.Set(name, values[0])
		}
	}
	out.Metadata.Set(MetadataPosition, m.Position.String())
	out.Metadata.Set(MetadataRecordedAt, m.Time.UTC().Format(time.RFC3339Nano))
	return out
}
