package wire

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// replies takes the answers of requests that have several answers. All requests share one subscription, since a
// subscription for each would cost 400 µs.
type replies struct {
	nc     *nats.Conn
	prefix string
	// Closed is closed with the connection: no answer will come any more.
	Closed chan struct{}

	mu    sync.Mutex
	sub   *nats.Subscription // nil before the first request
	last  uint64
	boxes map[string]chan *nats.Msg
}

func newReplies(nc *nats.Conn) *replies {
	return &replies{nc: nc, prefix: nc.NewRespInbox(), Closed: make(chan struct{}), boxes: map[string]chan *nats.Msg{}}
}

// Box opens an address for n answers. done closes it.
func (r *replies) Box(n int) (address string, answers <-chan *nats.Msg, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil {
		sub, err := r.nc.Subscribe(r.prefix+".*", r.deliver)
		if err == nil {
			// No limit: only requested answers arrive here, and each request bounds its own.
			err = sub.SetPendingLimits(-1, -1)
		}
		if err != nil {
			return "", nil, nil, fmt.Errorf("subscribe to replies: %w", err)
		}
		sub.SetClosedHandler(func(string) { close(r.Closed) })
		r.sub = sub
	}
	r.last++
	token := strconv.FormatUint(r.last, 36)
	c := make(chan *nats.Msg, n)
	r.boxes[token] = c
	return r.prefix + "." + token, c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.boxes, token)
	}, nil
}

// Next waits for the next answer in a box.
func (r *replies) Next(ctx context.Context, answers <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-answers:
		return m, nil
	case <-r.Closed:
		return nil, nats.ErrConnectionClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the subscription, and so all waits for answers.
func (r *replies) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub != nil {
		_ = r.sub.Unsubscribe() // the connection may be closed already
	}
}

func (r *replies) deliver(m *nats.Msg) {
	r.mu.Lock()
	c := r.boxes[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]]
	r.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case c <- m:
	default: // more answers than the box holds
	}
}
