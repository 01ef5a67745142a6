package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// Pull reads a JetStream consumer, one open request at a time. Only one goroutine may read from it.
//
// nats.go's iterators are not used, for two reasons. They tell the server's status messages from events by the event's
// own headers. Any client may publish an event without a body and with a header "Status", and the iterators swallow it,
// or take it for the consumer's end, for ever. And they can stall for a heartbeat when asked for few events
// (docs/design.md#watermill). Here a message is an event if it comes with a JetStream reply subject.
type Pull struct {
	nc  *nats.Conn
	sub *nats.Subscription
	in  chan *nats.Msg
	// consumer is "stream.name".
	consumer string
	size     Size
	// most events and bytes of a request. alone: the next event is too large for the bytes that were asked for.
	most, mostBytes int
	alone           bool
	// Each request has its own reply subject, so that a status of an earlier request is not taken for one of the open
	// request.
	inbox, reply string
	asked        uint64
	// open is how many events the open request may still bring, got how many it has brought.
	open, got int
	silence   *time.Timer
	// reconnected gets a status when the connection was closed or came back, perhaps to a server that does not know the
	// open request.
	reconnected chan nats.Status
}

const (
	pullExpiry = 5 * time.Second
	// A consumer that is silent for two and a half heartbeats is lost.
	pullHeartbeat = 500 * time.Millisecond
	pullSilence   = 5 * pullHeartbeat / 2
	// statusRoom is for messages that the server may send beside the events: heartbeats of a request that its reader
	// left open.
	statusRoom = 64
	// tooLarge is how the server says that the next event has more bytes than the request has left.
	tooLarge = "Message Size Exceeds MaxBytes"
)

// ErrLost says that the consumer is gone or silent, or that some of its events were lost on the way.
var ErrLost = errors.New("the consumer is lost")

// Size returns how many events and bytes the next request may ask for. It may wait, and it is called once the events of
// the last request have been taken. An event that is larger than these bytes comes alone.
type Size func(context.Context) (events, bytes int, err error)

// OpenPull opens a reader of a consumer. The reader asks for at most so many events at a time, and for fewer if there
// is a size.
func (c *Conn) OpenPull(stream, consumer string, most int, size Size) (*Pull, error) {
	p := &Pull{
		nc: c.NC, in: make(chan *nats.Msg, most+statusRoom), size: size, most: most, inbox: c.NC.NewInbox(),
		mostBytes: max(16<<20, 2*int(c.NC.MaxPayload())), // the largest event must fit
		consumer:  stream + "." + consumer, silence: time.NewTimer(pullSilence),
		reconnected: c.NC.StatusChanged(nats.CONNECTED, nats.CLOSED),
	}
	var err error
	if p.sub, err = c.NC.ChanSubscribe(p.inbox+".*", p.in); err != nil {
		p.stop()
		return nil, failure.Unavailable("", err)
	}
	return p, nil
}

// Next returns the next event. After ErrLost the caller must check the consumer.
func (p *Pull) Next(ctx context.Context) (*nats.Msg, error) {
	for {
		if p.open == 0 {
			if err := p.ask(ctx); err != nil {
				return nil, err
			}
		}
		m, err := p.message(ctx)
		if err != nil || p.event(m) {
			return m, err
		}
		if err := p.status(m); err != nil {
			return nil, err
		}
	}
}

// message returns the next message. Mostly it is there already.
func (p *Pull) message(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-p.in:
		return m, nil
	default:
	}
	p.silence.Reset(pullSilence)
	select {
	case m := <-p.in:
		return m, nil
	case <-p.silence.C:
	case <-p.reconnected:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.open = 0
	return nil, ErrLost
}

func (p *Pull) ask(ctx context.Context) error {
	batch, bytes := p.most, p.mostBytes
	var err error
	if p.size != nil {
		if batch, bytes, err = p.size(ctx); err != nil {
			return err
		}
	}
	if p.alone {
		batch, bytes, p.alone = 1, p.mostBytes, false
	}
	request, err := json.Marshal(map[string]int64{
		"batch": int64(batch), "max_bytes": int64(bytes),
		"expires": int64(pullExpiry), "idle_heartbeat": int64(pullHeartbeat),
	})
	if err != nil {
		return err
	}
	p.open, p.got = batch, 0
	p.asked++
	p.reply = p.inbox + "." + strconv.FormatUint(p.asked, 36)
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.consumer, p.reply, request); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// event reports whether a message is an event. Only the server makes reply subjects of this form.
func (p *Pull) event(m *nats.Msg) bool {
	if !strings.HasPrefix(m.Reply, "$JS.ACK.") {
		return false
	}
	p.open, p.got = max(0, p.open-1), p.got+1
	return true
}

// status handles a status message of the server. Every status but a heartbeat ends the open request. If the request has
// expired or reached its limit of bytes, the next one follows. Any other status may be the end of the consumer.
func (p *Pull) status(m *nats.Msg) error {
	if m.Subject != p.reply {
		return nil
	}
	status := m.Header.Get("Status")
	if status == "100" {
		return nil
	}
	p.open = 0
	p.alone = status == "409" && p.got == 0 && m.Header.Get("Description") == tooLarge
	if status == "404" || status == "408" || status == "409" && p.got > 0 || p.alone {
		return nil
	}
	return ErrLost
}

// Discard closes the reader, and asks the server to remove the consumer. If the server does not get this request, it
// removes the consumer after a time.
func (p *Pull) Discard() {
	p.stop()
	_ = p.sub.Unsubscribe()
	_ = p.nc.Publish("$JS.API.CONSUMER.DELETE."+p.consumer, nil)
}

// Drain closes the reader, and returns the events that the server has sent and that nobody has taken.
func (p *Pull) Drain() (left []*nats.Msg) {
	defer p.stop()
	closed := make(chan struct{})
	// nats.go calls the handler twice if the connection is closed meanwhile.
	once := sync.OnceFunc(func() { close(closed) })
	p.sub.SetClosedHandler(func(string) { once() })
	if err := p.sub.Drain(); err != nil {
		return nil
	}
	p.silence.Reset(pullSilence)
	select {
	case <-closed:
	case <-p.silence.C:
	}
	for {
		select {
		case m := <-p.in:
			if p.event(m) {
				left = append(left, m)
			}
		default:
			return left
		}
	}
}

func (p *Pull) stop() {
	p.silence.Stop()
	p.nc.RemoveStatusListener(p.reconnected)
}
