package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// NewMessage gives a fact as a Watermill message for a Publisher: its UUID is the
// event id, its metadata are the CloudEvents headers.
func NewMessage(f events.Fact) (*message.Message, error) {
	env, err := events.Encode(f, time.Now())
	if err != nil {
		return nil, err
	}
	m := message.NewMessage(f.EventID(), env.Body)
	for name, values := range env.Header {
		if !reserved(name) {
			m.Metadata.Set(name, values[0])
		}
	}
	return m, nil
}

// PublisherConfig of a Publisher.
type PublisherConfig struct {
	// Source is the ce-source of messages that bring none; "/turnledger" by default.
	Source string
	// Foreign lets pass messages that state no fact of Turnledger. The log keeps them
	// as anomalies, which change no view.
	Foreign bool
}

// Publisher is the Watermill publisher for pipelines: one message is one event of
// CONTRACT §5. The topic is the session id. The message's UUID is the event id
// (ce-id and Nats-Msg-Id), its metadata are the headers, its payload is the body; a
// ce-type must be among the metadata, and whatever else the envelope needs is
// filled in. Messages are published in their order, each once, however often a
// Publish is repeated within the server's window of duplicates, and Publish returns
// when they are on disk. It is the same path as Append, without an expectation: an
// event that contradicts the log is kept as an anomaly.
type Publisher struct {
	log *Log
	cfg PublisherConfig

	mu     sync.RWMutex
	closed bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher; it does no I/O.
func (l *Log) NewPublisher(cfg PublisherConfig) *Publisher {
	if cfg.Source == "" {
		cfg.Source = events.Source
	}
	return &Publisher{log: l, cfg: cfg}
}

// Publish appends messages to a session. A message that is no event is
// events.ErrMalformed, with a reason that holds none of its content; one that is too
// large is ErrTooLarge. On ErrUnavailable publish the same messages again. Nothing
// is published where one of the messages can't be.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("publish: %w", ErrClosed)
	}
	if err := events.ValidID(topic); err != nil {
		return fmt.Errorf("publish: session id: %w", err)
	}
	out := make([]*nats.Msg, len(messages))
	for i, m := range messages {
		var err error
		if out[i], err = p.encode(topic, m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	part := p.log.of(topic)
	var at events.Position
	for i, m := range out {
		var err error
		if at, err = p.append(messages[i].Context(), part, m, at); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return p.log.Durable(messages[len(messages)-1].Context(), at)
}

func (p *Publisher) append(ctx context.Context, part *partition, m *nats.Msg, before events.Position) (events.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, p.log.cfg.Deadline)
	defer cancel()
	ack, _, err := p.log.send(ctx, part, []*nats.Msg{m})
	// A duplicate stands before: what is durable must be the last of them all.
	return events.Position{Partition: part.number, Seq: max(before.Seq, ack.Position.Seq)}, err
}

// Close waits for what is being published; later Publish calls are ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// encode gives the message as it goes onto the wire.
func (p *Publisher) encode(session string, m *message.Message) (*nats.Msg, error) {
	h, err := headers(m.Metadata)
	if err != nil {
		return nil, err
	}
	if id := h[events.HeaderID]; len(id) > 0 && m.UUID != "" && id[0] != m.UUID {
		return nil, fmt.Errorf("%w: the message's UUID is not its %s", events.ErrMalformed, events.HeaderID)
	}
	if fill(h, events.HeaderID, m.UUID); p.cfg.Foreign {
		fill(h, events.HeaderID, watermill.NewUUID())
	}
	fill(h, events.HeaderSpecVersion, "1.0")
	fill(h, events.HeaderSource, p.cfg.Source)
	fill(h, events.HeaderTime, p.log.cfg.Now().UTC().Format(time.RFC3339Nano))
	out := &nats.Msg{Subject: events.SessionSubject(session), Header: h, Data: m.Payload}
	id := h[events.HeaderID][0]
	if p.cfg.Foreign {
		// Only an event id of Turnledger's is one over all sessions.
		id = events.Token(session) + "/" + id
	} else {
		fill(h, events.HeaderContentType, "application/json")
		if e := events.Decode(events.Envelope{Subject: out.Subject, Header: events.Header(h), Body: out.Data}, events.Position{}, time.Time{}); e.Problem != "" {
			return nil, fmt.Errorf("%w: %s", events.ErrMalformed, e.Problem)
		}
	}
	h[jetstream.MsgIDHeader] = []string{id}
	h[jetstream.ExpectedStreamHeader] = []string{p.log.of(session).name}
	return out, p.log.measure(out)
}

// envelope are the headers of the envelope, which stand in one spelling on the wire.
var envelope = []string{
	events.HeaderSpecVersion, events.HeaderID, events.HeaderSource, events.HeaderType, events.HeaderTime, events.HeaderContentType,
}

// headers gives metadata as headers, without what the server or the log writes
// itself. What a header can't carry unchanged is refused.
func headers(meta message.Metadata) (nats.Header, error) {
	h := nats.Header{}
	for k, v := range meta {
		if reserved(k) {
			continue
		}
		if !token(k) || strings.ContainsAny(v, "\r\n") || strings.TrimSpace(v) != v {
			return nil, errors.New("a metadata key or value that can't be a header")
		}
		for _, name := range envelope {
			if strings.EqualFold(k, name) {
				k = name
			}
		}
		h[k] = []string{v}
	}
	return h, nil
}

// reserved names are the server's, with which a publisher could delete or expire
// events, and those that a Subscriber adds.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "nats-") || name == MetadataPosition || name == MetadataRecordedAt
}

// token tells whether s is a header name (RFC 9110).
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func fill(h nats.Header, name, value string) {
	if len(h[name]) == 0 || h[name][0] == "" {
		h[name] = []string{value}
	}
}
