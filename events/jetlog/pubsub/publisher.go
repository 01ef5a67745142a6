package pubsub

import (
	"cmp"
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
	"golang.org/x/net/http/httpguts"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
)

// NewMessage returns a fact as a Watermill message for a Publisher: its UUID is the event id, its metadata are the
// CloudEvents headers.
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
	// Source is the ce-source of messages that have none; "/turnledger" by default.
	Source string
	// Foreign accepts messages that state no fact of Turnledger. The log keeps them as anomalies, which change no view.
	Foreign bool
}

// Publisher is the Watermill publisher for pipelines: one message is one event of docs/contract.md#the-log. The topic
// is the session id. The message's UUID is the event id (ce-id and Nats-Msg-Id), its metadata are the headers, its
// payload is the body. A ce-type must be among the metadata; the publisher fills in the other headers of the envelope.
// It publishes messages in their order, and returns when they are on disk. If a Publish is repeated within the server's
// window of duplicates, the log still has each message once. A publish is an Append without an expectation: if an event
// contradicts the log, the log keeps it as an anomaly.
type Publisher struct {
	log    *jetlog.Log
	inside inside.Log
	cfg    PublisherConfig

	mu     sync.RWMutex
	closed bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher on a log. It does no I/O.
func NewPublisher(log *jetlog.Log, cfg PublisherConfig) *Publisher {
	cfg.Source = cmp.Or(cfg.Source, events.Source)
	return &Publisher{log: log, inside: log.Inside(), cfg: cfg}
}

// Publish appends messages to a session. A message that is no event fails with events.ErrMalformed and a reason without
// any of its content. A message that is too large fails with jetlog.ErrTooLarge. In both cases no message is published.
// After jetlog.ErrUnavailable, publish the same messages again.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("publish: %w", jetlog.ErrClosed)
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
	at := events.Position{Partition: p.log.Partition(topic)}
	for i, m := range out {
		if err := p.append(messages[i].Context(), m, &at); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return p.log.Durable(messages[len(messages)-1].Context(), at)
}

// append appends a message, and raises the position up to which the messages must be durable. A duplicate has the
// position of its first publication, which may be before that of earlier messages.
func (p *Publisher) append(ctx context.Context, m *nats.Msg, at *events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, p.inside.Deadline)
	defer cancel()
	seq, err := p.inside.Publish(ctx, at.Partition, m)
	at.Seq = max(at.Seq, seq)
	return err
}

// Close waits for what is being published. Later calls of Publish fail with jetlog.ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// encode returns the NATS message for a Watermill message.
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
	fill(h, events.HeaderTime, time.Now().UTC().Format(time.RFC3339Nano))
	out := &nats.Msg{Subject: events.SessionSubject(session), Header: h, Data: m.Payload}
	id := h[events.HeaderID][0]
	if p.cfg.Foreign {
		// Only the event ids of Turnledger's own facts are unique over all sessions.
		id = events.Token(session) + "/" + id
	} else {
		fill(h, events.HeaderContentType, "application/json")
		envelope := events.Envelope{Subject: out.Subject, Header: events.Header(h), Body: out.Data}
		if e := events.Decode(envelope, events.Position{}, time.Time{}); e.Problem != "" {
			return nil, fmt.Errorf("%w: %s", events.ErrMalformed, e.Problem)
		}
	}
	h[jetstream.MsgIDHeader] = []string{id}
	h[jetstream.ExpectedStreamHeader] = []string{events.StreamName(p.log.Partition(session))}
	return out, p.inside.Measure(out)
}

// envelopeHeaders are the headers of the envelope, which have only one spelling on the wire.
var envelopeHeaders = []string{
	events.HeaderSpecVersion, events.HeaderID, events.HeaderSource,
	events.HeaderType, events.HeaderTime, events.HeaderContentType,
}

// headers returns metadata as headers, without the headers that the server or the log writes itself. It refuses
// metadata that a header can't carry unchanged.
func headers(meta message.Metadata) (nats.Header, error) {
	h := nats.Header{}
	for k, v := range meta {
		if reserved(k) {
			continue
		}
		if !httpguts.ValidHeaderFieldName(k) || strings.ContainsAny(v, "\r\n") || strings.TrimSpace(v) != v {
			return nil, errors.New("a metadata key or value that can't be a header")
		}
		for _, name := range envelopeHeaders {
			if strings.EqualFold(k, name) {
				k = name
			}
		}
		h[k] = []string{v}
	}
	return h, nil
}

// reserved reports whether a name belongs to the server, whose headers could delete or expire events, or is one that a
// Subscriber adds.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "nats-") || name == MetadataPosition || name == MetadataRecordedAt
}

func fill(h nats.Header, name, value string) {
	if len(h[name]) == 0 || h[name][0] == "" {
		h[name] = []string{value}
	}
}
