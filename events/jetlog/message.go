package jetlog

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/turnledger/turnledger/events"
)

// Message is an event as a tail delivers it.
type Message struct {
	Subject  string
	Position events.Position
	Time     time.Time
	// Continues: the event links a session in one append with the next event. A batch does not end between the two, so
	// that nobody sees a link without the turn that came with it.
	Continues bool
	unfinished
	header  nats.Header
	body    []byte
	decoded *events.Recorded
	// size is the approximate size in memory, in bytes.
	size int
	// delivered is the event's number among all that its consumer has delivered, from 1. pending is how many the log
	// has for that consumer after it.
	delivered, pending uint64
}

// unfinished is what a tail must know of an event to tell whether the next one belongs to it.
type unfinished struct {
	// batched: the event is a link in an atomic batch that goes on after it.
	batched bool
	// append identifies the append that wrote the event.
	append string
}

// note reads from an event's headers whether it lies in an atomic batch.
func (u *unfinished) note(h nats.Header) {
	if h.Get(jetstreamext.BatchIDHeader) == "" {
		return
	}
	u.batched = h.Get(jetstreamext.BatchCommitHeader) == "" &&
		events.Header(h).Value(events.HeaderType) == events.TypeSessionLinked
	u.append = h.Get(appendHeader)
}

// meets settles whether a link and the event after it belong together: both are of one session.
func (m *Message) meets(next *Message) {
	m.Continues = m.batched && m.append != "" && m.append == next.append && m.Subject == next.Subject
	m.unfinished = unfinished{}
	if !next.batched {
		next.append = "" // nothing comes after it
	}
}

// MessageOf returns the event that a consumer of a partition's stream has delivered.
func MessageOf(partition int, m *nats.Msg) (Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, err
	}
	out := Message{
		Subject: m.Subject, Position: events.Position{Partition: partition, Seq: meta.Sequence.Stream},
		Time: meta.Timestamp, header: m.Header, body: m.Data, delivered: meta.Sequence.Consumer,
		pending: meta.NumPending,
	}
	out.note(m.Header)
	return out, nil
}

// DecodedMessage returns a decoded event in the form in which a tail delivers it. The caller must not change the event
// afterwards.
func DecodedMessage(e *events.Recorded) Message {
	return Message{Subject: e.Subject, Position: e.Position, Time: e.Time, decoded: e}
}

// Header returns the event's headers as they stand in the log; nil after a tail has decoded the event.
func (m Message) Header() events.Header { return events.Header(m.header) }

// Body returns the event's body as it stands in the log; nil after a tail has decoded the event.
func (m Message) Body() []byte { return m.body }

// Recorded returns the decoded event.
func (m Message) Recorded() events.Recorded { return *m.Decoded() }

// Decoded is Recorded without a copy. The caller must not change the event.
func (m Message) Decoded() *events.Recorded {
	if m.decoded != nil {
		return m.decoded
	}
	envelope := events.Envelope{Subject: m.Subject, Header: m.Header(), Body: m.body}
	e := events.Decode(envelope, m.Position, m.Time)
	return &e
}

// Decode decodes the event for all who ask for it later, and lets go of the headers and the body as they stand in the
// log. Nobody else may read the message meanwhile.
func (m *Message) Decode() {
	if m.decoded == nil {
		m.decoded = m.Decoded()
		m.size += len(m.body) // the texts of the fact are copies of those in the body
		m.header, m.body = nil, nil
	}
}

// Size estimates the bytes that the message takes in memory.
func (m Message) Size() int { return m.size }

// Type returns the event type that the header states, whatever the body says.
func (m Message) Type() string {
	if m.decoded != nil {
		return m.decoded.Type
	}
	return m.Header().Value(events.HeaderType)
}

// Call returns the value of events.HeaderCall, or "".
func (m Message) Call() string {
	if m.decoded != nil {
		return m.decoded.Call
	}
	if v := m.header[events.HeaderCall]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// ID returns the event id that the header states.
func (m Message) ID() string {
	if m.decoded != nil {
		return m.decoded.ID
	}
	return m.Header().Value(events.HeaderID)
}
