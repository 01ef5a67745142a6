// Package relay carries answers that are being made between the processes of a deployment, over core NATS: one process
// asks, and the process that makes the answer replies to its inbox. What is sent is sealed under a key that they share,
// and bound to its answer, its inbox, its request and its place; what is not sealed so is ignored. So a user of the
// same NATS account learns no piece, forges none, and stops no answer, also not by sending again what he heard.
// Subjects hold ids that say nothing of the texts. A message that is lost is noticed, and ends the stream.
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// Relay implements answer.Relay. Safe for concurrent use.
type Relay struct {
	nc *nats.Conn
	sealer
}

var _ answer.Relay = (*Relay)(nil)

// New makes a relay; it does no I/O, and does not own the connection. The key is the same in every process.
func New(nc *nats.Conn, key string) *Relay { return &Relay{nc, newSealer(key)} }

func subject(step uuid.UUID) string { return "turnledger.answer." + step.String() }

const (
	// beat is the pause between heartbeats, and silence how long a watcher waits for one.
	beat    = 500 * time.Millisecond
	silence = 4 * beat
	// patience is how long a process may take to reply. grace is how long it may once the server has said that nobody
	// listens, which a user of the account may say, too.
	patience = time.Second
	grace    = 150 * time.Millisecond
	// again is the pause before a request is sent again: the process that replies may have begun only now.
	again = 40 * time.Millisecond
	// lease is how long a watcher is served that does not say that it stays.
	lease = 6 * beat
	// mostWatching bounds those who watch one answer at the same time, and mostAsked the requests that are known.
	mostWatching, mostAsked = 256, 1 << 14
	// mostPending bounds what may wait for a watcher; one that is behind is dropped.
	mostPending, mostPendingBytes = 1 << 16, 64 << 20
)

// offer is an answer that this process makes.
type offer struct {
	*Relay
	answer.Offer

	ctx     context.Context //nolint:containedctx // of the answer
	subject string
	attempt id

	mu sync.Mutex
	// asked are the requests to watch, with what ends them; nil are those that have ended.
	asked    map[id]*watching
	watching int
}

// watching is somebody who watches.
type watching struct {
	leave context.CancelFunc
	// since is when he last said that he stays.
	since time.Time
}

// Offer implements answer.Relay.
func (r *Relay) Offer(ctx context.Context, step uuid.UUID, o answer.Offer) (leave func(), err error) {
	of := &offer{
		Relay: r, Offer: o, ctx: ctx, subject: subject(step), attempt: newID(), asked: map[id]*watching{},
	}
	sub, err := r.nc.Subscribe(of.subject, of.hear)
	if err != nil {
		return nil, fmt.Errorf("offer an answer: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// hear handles a request.
func (o *offer) hear(m *nats.Msg) {
	q, sealed := o.openRequest(o.subject, m.Reply, m.Data)
	if !sealed {
		return
	}
	switch q.op {
	case opAsk:
		o.reply(m, q)
	case opStop:
		if q.attempt == o.attempt {
			o.Offer.Stop()
			o.reply(m, q)
		}
	case opWatch:
		if ctx, first := o.enter(q.id); first {
			to := &sending{nc: o.nc, inbox: m.Reply, series: newSeries(o.sealer, o.subject, m.Reply, q.id, newID())}
			o.Go(func() { o.serve(ctx, q.id, to) })
		}
	case opLeave, opStay:
		o.mu.Lock()
		defer o.mu.Unlock()
		if w := o.asked[q.id]; w != nil {
			if w.since = time.Now(); q.op == opLeave {
				w.leave()
			}
		}
	}
}

func (o *offer) reply(m *nats.Msg, q request) {
	_ = o.nc.Publish(m.Reply, o.sealReply(o.subject, m.Reply, q.id, o.attempt)) // the asker asks again
}

// enter takes a request to watch; first: it is no copy.
func (o *offer) enter(request id) (ctx context.Context, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.asked[request]; known || o.watching == mostWatching || len(o.asked) == mostAsked {
		return nil, false
	}
	ctx, leave := context.WithCancel(o.ctx)
	o.watching++
	o.asked[request] = &watching{leave, time.Now()}
	return ctx, true
}

// exit ends a request to watch.
func (o *offer) exit(request id) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[request].leave()
	o.asked[request] = nil
	o.watching--
}

// stays reports whether somebody who watches has said so lately. A process that was killed says nothing.
func (o *offer) stays(request id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.asked[request].since) < lease
}

// serve sends an answer to an inbox, until it has ended or its watcher has left. In a silence it sends heartbeats.
func (o *offer) serve(ctx context.Context, request id, to *sending) {
	defer o.exit(request)
	ctx, end := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		for tick := time.NewTicker(beat); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if _ = to.send(frameBeat, nil); !o.stays(request) {
					end()
				}
			}
		}
	})
	o.Serve(ctx, func(frame []byte) {
		if to.frame(frame) != nil {
			end()
		}
	})
	left := ctx.Err() != nil
	end()
	beating.Wait()
	if !left {
		_ = to.send(frameEnd, nil)
	}
}

// asking is a request and its inbox.
type asking struct {
	*Relay
	request

	sub     *nats.Subscription
	subject string
	// heard: the process has replied. until is when the next message must be there.
	heard bool
	until time.Time
	// said is when the process was last told what this one wants.
	said time.Time
}

// ask sends a request about a step.
func (r *Relay) ask(step uuid.UUID, q request) (a *asking, err error) {
	q.id = newID()
	a = &asking{Relay: r, request: q, subject: subject(step), until: time.Now().Add(patience), said: time.Now()}
	if a.sub, err = r.nc.SubscribeSync(r.nc.NewInbox()); err != nil {
		return nil, fmt.Errorf("ask for an answer: %w", err)
	}
	_ = a.sub.SetPendingLimits(mostPending, mostPendingBytes) // numbers that are valid
	if err = a.send(q.op); err != nil {
		a.leave()
		return nil, fmt.Errorf("ask for an answer: %w", err)
	}
	return a, nil
}

func (a *asking) send(op byte) error {
	q := a.request
	q.op = op
	return a.nc.PublishRequest(a.subject, a.sub.Subject, a.sealRequest(a.subject, a.sub.Subject, q))
}

func (a *asking) leave() { _ = a.sub.Unsubscribe() }

// next returns the next message that read takes. It fails with services.ErrNotRunning if none comes in time.
func (a *asking) next(ctx context.Context, read func([]byte) bool) error {
	for {
		until := a.until
		if next := a.said.Add(again); !a.heard && next.Before(until) {
			until = next
		}
		within, end := context.WithDeadline(ctx, until)
		m, err := a.sub.NextMsgWithContext(within)
		end()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrNoResponders): // or somebody says so
			if soon := time.Now().Add(grace); !a.heard && soon.Before(a.until) {
				a.until = soon
			}
		case err != nil && until.Before(a.until):
			a.said = time.Now()
			_ = a.send(a.op) // or else the next one
		case err != nil:
			return services.ErrNotRunning
		case read(m.Data):
			a.heard = true
			return nil
		}
	}
}

// Offered implements answer.Relay.
func (r *Relay) Offered(ctx context.Context, step uuid.UUID) (bool, error) {
	_, offered, err := r.call(ctx, step, request{op: opAsk})
	return offered, err
}

// call sends a request that has one reply, and returns the attempt that it names.
func (r *Relay) call(ctx context.Context, step uuid.UUID, q request) (attempt id, replied bool, err error) {
	a, err := r.ask(step, q)
	if err != nil {
		return attempt, false, err
	}
	defer a.leave()
	err = a.next(ctx, func(raw []byte) (sealed bool) {
		attempt, sealed = r.openReply(a.subject, a.sub.Subject, a.request.id, raw)
		return sealed
	})
	if errors.Is(err, services.ErrNotRunning) {
		return attempt, false, nil
	}
	return attempt, err == nil, err
}

// Stop implements answer.Relay. The request names the attempt that the process told before, so that it ends no other.
func (r *Relay) Stop(ctx context.Context, step uuid.UUID) (bool, error) {
	attempt, offered, err := r.call(ctx, step, request{op: opAsk})
	if err != nil || !offered {
		return false, err
	}
	_, stopped, err := r.call(ctx, step, request{op: opStop, attempt: attempt})
	return stopped, err
}

// Attach implements answer.Relay.
func (r *Relay) Attach(ctx context.Context, step uuid.UUID, each func(frame []byte)) error {
	a, err := r.ask(step, request{op: opWatch})
	if err != nil {
		return err
	}
	defer a.leave()
	var from received
	for {
		var kind byte
		var data []byte
		err := a.next(ctx, func(raw []byte) (sealed bool) {
			kind, data, sealed = from.open(a, raw)
			return sealed
		})
		switch {
		case ctx.Err() != nil:
			_ = a.send(opLeave)
			return ctx.Err()
		case err != nil && a.heard, kind == frameLost:
			return services.ErrAnswerLost
		case err != nil:
			return err
		case kind == frameEnd:
			return nil
		case kind == frameWhole:
			each(data)
		}
		now := time.Now()
		if a.until = now.Add(silence); now.Sub(a.said) > silence/2 {
			a.said = now
			_ = a.send(opStay) // or else the next one
		}
	}
}
