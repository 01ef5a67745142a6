package jetlog

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
)

// pull reads a JetStream consumer, one open request at a time. For one reader.
//
// nats.go's iterators are not used: they tell the server's status messages from
// events by the event's own headers, so that an event without a body and with a
// header "Status", which any client may publish, is swallowed, or taken for the
// consumer's end, for ever; and they can stall for a heartbeat when asked for
// little (DESIGN §5). Here an event is what comes with a JetStream reply subject.
type pull struct {
	nc  *nats.Conn
	sub *nats.Subscription
	in  chan *nats.Msg
	// consumer is "stream.name".
	consumer string
	request  []byte
	batch    int
	// Each request has a reply subject of its own, so that what the server says of
	// one that is over is not taken for a word on the open one.
	inbox, reply string
	asked        uint64
	// open counts what the open request may still bring, got what it has brought.
	open, got int
	silence   *time.Timer
	// turned tells of a connection that came back, perhaps to a server that does not
	// know the open request, or that was closed.
	turned chan nats.Status
}

const (
	pullExpiry = 5 * time.Second
	// A consumer that is silent for two heartbeats and a half is lost.
	pullHeartbeat = 500 * time.Millisecond
	pullSilence   = 5 * pullHeartbeat / 2
	// statusRoom is what the server may say beside the events: heartbeats of a
	// request that its reader left open.
	statusRoom = 64
)

// errLost: the consumer is gone or silent, or events of it were lost on the way.
var errLost = errors.New("the consumer is lost")

func (l *Log) openPull(stream, consumer string, batch int) (*pull, error) {
	request, err := json.Marshal(map[string]int64{
		"batch": int64(batch), "expires": int64(pullExpiry), "idle_heartbeat": int64(pullHeartbeat),
		// Bounds what waits for a slow reader; the largest event must fit.
		"max_bytes": max(16<<20, 2*l.nc.MaxPayload()),
	})
	if err != nil {
		return nil, err
	}
	p := &pull{
		nc: l.nc, in: make(chan *nats.Msg, batch+statusRoom), request: request, batch: batch, inbox: l.nc.NewInbox(),
		consumer: stream + "." + consumer, silence: time.NewTimer(pullSilence),
		turned: l.nc.StatusChanged(nats.CONNECTED, nats.CLOSED),
	}
	if p.sub, err = l.nc.ChanSubscribe(p.inbox+".*", p.in); err != nil {
		p.stop()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return p, nil
}

// next gives the next event. errLost is for the caller to look at the consumer.
func (p *pull) next(ctx context.Context) (*nats.Msg, error) {
	if p.open == 0 {
		if err := p.ask(); err != nil {
			return nil, err
		}
	}
	select {
	case m := <-p.in:
		if p.event(m) {
			return m, nil
		}
		if err := p.status(m); err != nil {
			return nil, err
		}
	default:
	}
	for {
		p.silence.Reset(pullSilence)
		select {
		case m := <-p.in:
			if p.event(m) {
				return m, nil
			}
			if err := p.status(m); err != nil {
				return nil, err
			}
		case <-p.silence.C:
			p.open = 0
			return nil, errLost
		case <-p.turned:
			p.open = 0
			return nil, errLost
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *pull) ask() error {
	p.open, p.got = p.batch, 0
	p.asked++
	p.reply = p.inbox + "." + strconv.FormatUint(p.asked, 36)
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.consumer, p.reply, p.request); err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return nil
}

// event tells whether a message is one; only the server gives reply subjects of
// this form.
func (p *pull) event(m *nats.Msg) bool {
	if !strings.HasPrefix(m.Reply, "$JS.ACK.") {
		return false
	}
	p.open, p.got = max(0, p.open-1), p.got+1
	return true
}

// status takes a word of the server. Everything but a heartbeat ends the open
// request: at its expiry, or when it has brought its bytes, the next is opened;
// anything else may be the end of the consumer.
func (p *pull) status(m *nats.Msg) error {
	if m.Subject != p.reply {
		return nil
	}
	switch m.Header.Get("Status") {
	case "100":
		return nil
	case "404", "408":
		return p.ask()
	case "409":
		if p.got > 0 {
			return p.ask()
		}
	}
	p.open = 0
	return errLost
}

// discard closes, and tells the server that nobody needs the consumer any more; one
// that does not hear it removes it after a time.
func (p *pull) discard() {
	p.stop()
	_ = p.sub.Unsubscribe()
	_ = p.nc.Publish("$JS.API.CONSUMER.DELETE."+p.consumer, nil)
}

// drain closes, and gives the events that were on their way: the server sends none
// any more, and what it had sent before is here.
func (p *pull) drain() (left []*nats.Msg) {
	defer p.stop()
	closed := make(chan struct{})
	// nats.go calls it twice where the connection is closed meanwhile.
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

func (p *pull) stop() {
	p.silence.Stop()
	p.nc.RemoveStatusListener(p.turned)
}
