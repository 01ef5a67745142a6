package backup

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Handler answers requests. EndStreams ends the streams that have no end of their own, and those that begin before
// ResumeStreams is called.
type Handler interface {
	http.Handler
	EndStreams()
	ResumeStreams()
}

// Door lets requests through to a process's handler while it is open. While the log of the process is being replaced,
// Closed answers them. So the process keeps its address, and no other process answers in its place. A Door outlives the
// handlers behind it.
type Door struct {
	closed http.Handler
	// How long running requests may take after the door is shut: patience in the normal way, then haste, during which
	// slow clients are no longer waited for.
	patience, haste time.Duration

	mu sync.Mutex
	// handler is nil while the door is shut.
	handler Handler
	inHand  map[*visit]struct{}
	// left is closed, and replaced by a new channel, when a request ends.
	left chan struct{}
}

// visit is a running request.
type visit struct{ conn *http.ResponseController }

type visitKey struct{}

// NewDoor returns a shut door.
func NewDoor(closed http.Handler) *Door {
	return &Door{
		closed: closed, patience: 10 * time.Second, haste: 5 * time.Second,
		inHand: map[*visit]struct{}{}, left: make(chan struct{}),
	}
}

// Open lets requests through to a handler.
func (d *Door) Open(h Handler) {
	h.ResumeStreams()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handler = h
}

// EndStreams ends the streams of the current handler.
func (d *Door) EndStreams() {
	d.mu.Lock()
	h := d.handler
	d.mu.Unlock()
	if h != nil {
		h.EndStreams()
	}
}

// ServeHTTP passes the request to the handler, or to Closed.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{http.NewResponseController(w)}
	d.mu.Lock()
	h := d.handler
	if h != nil {
		d.inHand[v] = struct{}{}
	}
	d.mu.Unlock()
	if h == nil {
		d.closed.ServeHTTP(w, r)
		return
	}
	defer d.leave(v)
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
}

func (d *Door) leave(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inHand, v)
	close(d.left)
	d.left = make(chan struct{})
}

// shut refuses new requests, ends streams, and waits for the running requests, except the one that ctx belongs to. It
// calls hurry if they take long. If they still don't end, it opens the door again and fails.
func (d *Door) shut(ctx context.Context, hurry func()) error {
	d.EndStreams()
	d.mu.Lock()
	h := d.handler
	d.handler = nil
	d.mu.Unlock()
	mine, _ := ctx.Value(visitKey{}).(*visit)
	if d.await(ctx, d.patience, mine) == nil {
		return nil
	}
	hurry()
	d.mu.Lock()
	for v := range d.inHand {
		if v != mine {
			_ = v.conn.SetReadDeadline(time.Now())
		}
	}
	d.mu.Unlock()
	err := d.await(ctx, d.haste, mine)
	if err != nil && h != nil {
		d.Open(h)
	}
	return err
}

// Empty waits until no request is running, for at most as long as shut waits.
func (d *Door) Empty(ctx context.Context) error { return d.await(ctx, d.patience+d.haste, nil) }

// await waits for all running requests except one.
func (d *Door) await(ctx context.Context, limit time.Duration, but *visit) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		d.mu.Lock()
		others, left := len(d.inHand), d.left
		if _, in := d.inHand[but]; in {
			others--
		}
		d.mu.Unlock()
		if others == 0 {
			return nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return fmt.Errorf("%d requests are still under way: %w", others, ctx.Err())
		}
	}
}
