// Package wire sends requests to a NATS server with JetStream: requests with one answer or with several, for stored
// messages, and for the events of a consumer.
package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// Conn sends requests over one connection, which it does not own. Safe for concurrent use.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream
	*replies
}

// New returns a Conn. It does no I/O.
func New(nc *nats.Conn) (*Conn, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Conn{NC: nc, JS: js, replies: newReplies(nc)}, nil
}

const (
	// ReadDeadline is how long a request to the server may take.
	ReadDeadline = 2 * time.Second
	// AskAgain is the pause after which a request without an answer is sent again. It is longer than the server takes
	// for an answer that it must read from the disk.
	AskAgain = ReadDeadline / 4
)

// Call sends one request to JetStream, and waits for the answer until ctx ends.
func (c *Conn) Call(ctx context.Context, verb string, req, out any) error {
	body, err := asJSON(req)
	if err != nil {
		return err
	}
	reply, err := c.NC.RequestWithContext(ctx, "$JS.API."+verb, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, out)
}

// Ask is Call for a request that changes nothing. It repeats the request while there is no answer. A request that was
// sent while there was no leader is never answered, not even by the leader that is elected a moment later. The first
// answer counts, whichever attempt it belongs to.
func (c *Conn) Ask(ctx context.Context, verb string, req, out any) error {
	body, err := asJSON(req)
	if err != nil {
		return err
	}
	address, answers, done, err := c.Box(2 * int(ReadDeadline/AskAgain))
	if err != nil {
		return err
	}
	defer done()
	again := time.NewTicker(AskAgain)
	defer again.Stop()
	for {
		if err := c.NC.PublishRequest("$JS.API."+verb, address, body); err != nil {
			return err
		}
		if m, err := c.answer(ctx, answers, again.C); err != nil {
			return err
		} else if m != nil {
			return json.Unmarshal(m.Data, out)
		}
	}
}

// answer waits for an answer. When enough fires first, it returns nil.
func (c *Conn) answer(ctx context.Context, answers <-chan *nats.Msg, enough <-chan time.Time) (*nats.Msg, error) {
	for {
		select {
		case m := <-answers:
			if !noResponders(m) {
				return m, nil
			}
		case <-enough:
			return nil, nil
		case <-c.Closed:
			return nil, nats.ErrConnectionClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// noResponders reports whether an answer is the server's report that nobody listens to the request.
func noResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

func asJSON(req any) ([]byte, error) {
	if req == nil {
		return nil, nil
	}
	return json.Marshal(req)
}

// Stored is a message as the leader returns it.
type Stored struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// Message asks the leader of a stream for one message. It returns nil if there is none.
func (c *Conn) Message(ctx context.Context, stream string, request map[string]any) (*Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadDeadline)
	defer cancel()
	var out struct {
		Message *Stored             `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := c.Ask(ctx, "STREAM.MSG.GET."+stream, request, &out); err != nil {
		return nil, failure.Unavailable("", err)
	}
	switch {
	case out.Message != nil:
		return out.Message, nil
	case out.Error == nil:
		return nil, fmt.Errorf("%w: no message in the answer", failure.ErrUnavailable)
	case out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	}
	return nil, failure.Unavailable("", out.Error)
}

// Recorded decodes a message of a partition.
func (m *Stored) Recorded(partition int) events.Recorded {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		header = nats.Header{} // such an event states nothing, and is recorded as an anomaly
	}
	return events.Decode(events.Envelope{Subject: m.Subject, Header: events.Header(header), Body: m.Data},
		events.Position{Partition: partition, Seq: m.Seq}, m.Time)
}

// Mirrors returns the account's mirrors, by the names of the streams that they mirror. It leaves out mirrors of another
// domain or account: their stream is another one, even if it has the same name.
func (c *Conn) Mirrors(ctx context.Context) (map[string][]*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadDeadline)
	defer cancel()
	out := map[string][]*jetstream.StreamInfo{}
	streams := c.JS.ListStreams(ctx)
	for info := range streams.Info() {
		if m := info.Config.Mirror; m != nil && m.External == nil {
			out[m.Name] = append(out[m.Name], info)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, failure.Unavailable("look for mirrors", err)
	}
	return out, nil
}
