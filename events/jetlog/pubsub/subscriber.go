package pubsub

import (
	"cmp"
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
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/pause"
)

const (
	// MetadataPosition is the metadata key of an event's position ("0:42"), which a Subscriber adds to its headers.
	MetadataPosition = "turnledger-position"
	// MetadataRecordedAt is the metadata key of the time at which the log recorded an event (RFC 3339).
	MetadataRecordedAt = "turnledger-recorded-at"
)

// SubscriberConfig of a Subscriber.
type SubscriberConfig struct {
	// Group names the readers: [A-Za-z0-9_-], at most 64 characters. The log remembers for ever which events of a topic
	// a group has acked. Subscriptions of one group share its events. A new group begins with the first event.
	Group string
	// Sessions makes the topics session ids. By default the topics are the names of the log's streams
	// (events.StreamName), each with all events of its partition.
	Sessions bool
	// AckWait is how long an event of a subscriber that died is withheld from its group; 30 s by default. A slow
	// subscriber may keep an event as long as it needs.
	AckWait time.Duration
	// NackPause is how long a nacked event waits before it comes again; 100 ms by default.
	NackPause time.Duration
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Subscriber is the Watermill subscriber for third-party projectors and side effects: one message is one durable event
// of the log. Each group gets the events of a topic one at a time, in log order. The next event comes after the present
// one was acked; a nacked event comes again first. Each event comes at least once.
//
// The message's UUID is the event id. Its metadata are the first values of the event's headers, without the server's
// own, and MetadataPosition and MetadataRecordedAt. MessageBatch returns the event itself.
type Subscriber struct {
	log    *jetlog.Log
	inside inside.Log
	cfg    SubscriberConfig
	subs   subscriptions
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber returns a subscriber on a log. It does no I/O.
func NewSubscriber(log *jetlog.Log, cfg SubscriberConfig) (*Subscriber, error) {
	if !groupName.MatchString(cfg.Group) {
		return nil, errors.New("a subscriber's group must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	cfg.AckWait, cfg.NackPause = cmp.Or(cfg.AckWait, 30*time.Second), cmp.Or(cfg.NackPause, 100*time.Millisecond)
	return &Subscriber{log: log, inside: log.Inside(), cfg: cfg}, nil
}

// Subscribe follows a topic until ctx ends, the subscriber or the connection is closed, or the stream was made anew.
// Then it closes the channel. Events that were not acked by then come again, at once, to the group's next subscription.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	p, consumer, err := s.consumer(topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	out := make(chan *message.Message)
	r := &groupReader{Subscriber: s, p: p, consumer: consumer, out: out}
	if err := r.connect(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if err := s.subs.begin(ctx, r.run); err != nil {
		r.end()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return out, nil
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.subs.close()
	return nil
}

// consumer returns the durable consumer of a topic, and its partition.
func (s *Subscriber) consumer(topic string) (inside.Partition, jetstream.ConsumerConfig, error) {
	cfg := jetstream.ConsumerConfig{
		Durable: s.cfg.Group, AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.cfg.AckWait,
		// One event at a time keeps the order, even across the members of the group.
		MaxAckPending: 1,
	}
	if !s.cfg.Sessions {
		p, err := partitionOf(s.inside, topic)
		return p, cfg, err
	}
	if err := events.ValidID(topic); err != nil {
		return inside.Partition{}, cfg, fmt.Errorf("session id: %w", err)
	}
	sum := sha256.Sum256([]byte(topic))
	cfg.Durable += "-" + hex.EncodeToString(sum[:16])
	cfg.FilterSubject = events.SessionSubject(topic)
	p, err := s.inside.Partition(s.log.Partition(topic))
	return p, cfg, err
}

// partitionOf returns the partition whose stream has the given name.
func partitionOf(log inside.Log, stream string) (inside.Partition, error) {
	for k := range log.Layout.Partitions {
		if events.StreamName(k) == stream {
			return log.Partition(k)
		}
	}
	return inside.Partition{}, fmt.Errorf("%q is no stream of the log", stream)
}

// groupReader is one subscription of a group.
type groupReader struct {
	*Subscriber
	p        inside.Partition
	consumer jetstream.ConsumerConfig
	in       *wire.Pull
	out      chan<- *message.Message
}

// connect creates the consumer if it is missing, and opens a reader of it.
func (r *groupReader) connect(ctx context.Context) (err error) {
	if _, err := r.inside.Wire.JS.CreateOrUpdateConsumer(ctx, r.p.Stream, r.consumer); err != nil {
		return jetlog.Unavailable("", err)
	}
	r.in, err = r.inside.Wire.OpenPull(r.p.Stream, r.consumer.Durable, 1, nil)
	return err
}

// run emits events until ctx ends, or until the stream or the connection is gone.
func (r *groupReader) run(ctx context.Context) {
	defer close(r.out)
	defer r.end()
	wait := pause.Growing(5*time.Millisecond, time.Second)
	for ctx.Err() == nil {
		m, err := r.in.Next(ctx)
		if err == nil {
			wait.Reset()
			r.emit(ctx, m)
			continue
		}
		for err != nil && ctx.Err() == nil {
			pause.For(ctx, wait.NextBackOff())
			if err = r.revive(ctx); errors.Is(err, jetlog.ErrStream) || r.inside.Wire.NC.IsClosed() {
				return
			}
		}
	}
}

// revive creates the consumer again, if it is gone with the server that held it. It first checks that the stream is the
// one that the log opened.
func (r *groupReader) revive(ctx context.Context) error {
	if _, err := r.inside.LeaderHead(ctx, r.p.Number); err != nil {
		return err
	}
	_, err := r.inside.Wire.JS.CreateOrUpdateConsumer(ctx, r.p.Stream, r.consumer)
	return err
}

// end closes the reader, and returns to the server the events that it has sent and nobody will see.
func (r *groupReader) end() {
	for _, m := range r.in.Drain() {
		_ = m.Respond(nak(0))
	}
}

// emit waits until a delivered event is durable, emits it, and answers the server with the reader's verdict.
func (r *groupReader) emit(ctx context.Context, m *nats.Msg) {
	event, err := jetlog.MessageOf(r.p.Number, m)
	if err == nil {
		err = r.log.Durable(ctx, event.Position)
	}
	if err != nil {
		_ = m.Respond(nak(r.cfg.NackPause))
		return
	}
	working := func() { _ = m.Respond([]byte("+WPI")) }
	e := emitter{out: r.out, every: r.cfg.AckWait / 3, working: working}
	switch e.deliver(ctx, newMessage(event), []jetlog.Message{event}) {
	case acked:
		_ = m.Respond([]byte("+ACK"))
	case nacked:
		_ = m.Respond(nak(r.cfg.NackPause))
	case unheard:
		_ = m.Respond(nak(0))
	}
}

func nak(after time.Duration) []byte {
	if after == 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay":%d}`, after.Nanoseconds())
}

// newMessage returns an event as a message that pipelines can read.
func newMessage(m jetlog.Message) *message.Message {
	out := message.NewMessage(cmp.Or(m.ID(), m.Position.String()), m.Body())
	for name, values := range m.Header() {
		if len(values) > 0 && !reserved(name) {
			out.Metadata.Set(name, values[0])
		}
	}
	out.Metadata.Set(MetadataPosition, m.Position.String())
	out.Metadata.Set(MetadataRecordedAt, m.Time.UTC().Format(time.RFC3339Nano))
	return out
}
