package replay

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/follower"
)

// backlog reads the events of one partition that a query selects: first the events up to an end that was the
// partition's head, and for a follower the events after it. The last events may have been erased, and then the event at
// the end never comes. So when no event comes for a while, the backlog asks the log whether any event is left before
// the end.
type backlog struct {
	log        *jetlog.Log
	partition  int
	after, end uint64
	options    jetlog.TailOptions

	tail  tail
	ready []jetlog.Message
	// pull and stop read the backlog of a single session, which needs no tail.
	pull func() (events.Recorded, error, bool)
	stop func()
}

// tail brings the events of a partition, in order.
type tail interface {
	Next(ctx context.Context) ([]jetlog.Message, error)
	Close()
}

// ofSession makes the backlog read only one session's subject.
func (b *backlog) ofSession(ctx context.Context, id string) {
	b.options = jetlog.TailOptions{Subject: events.SessionSubject(id)}
	b.pull, b.stop = iter.Pull2(b.log.Session(ctx, id, b.after, b.end))
}

// stillFor is how long the tail may deliver nothing before the backlog asks the log whether events are left.
const stillFor = 250 * time.Millisecond

// more reports whether there is a next message up to the end; it reads until it knows. Messages after the end stay for
// a follower.
func (b *backlog) more(ctx context.Context) (bool, error) {
	for len(b.ready) == 0 {
		if b.after >= b.end {
			return false, nil
		}
		if err := b.fill(ctx); err != nil {
			return false, err
		}
	}
	return b.ready[0].Position.Seq <= b.end, nil
}

// fill reads the next messages up to the end, or moves on to the end when no event is left before it.
func (b *backlog) fill(ctx context.Context) error {
	if b.pull != nil {
		return b.fillSession(ctx)
	}
	if b.tail != nil {
		err := b.readBriefly(ctx)
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	still, err := b.log.Still(ctx, b.partition, b.after, b.end)
	switch {
	case err != nil:
		return err
	case still:
		b.after = b.end
	case b.tail == nil:
		err = b.open(ctx)
	}
	return err
}

// open opens a tail after what was read.
func (b *backlog) open(ctx context.Context) error {
	tail, err := b.log.Tail(ctx, b.partition, b.after, b.options)
	if err == nil {
		b.tail = tail
	}
	return err
}

func (b *backlog) fillSession(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err, there := b.pull()
	switch {
	case err != nil:
		b.pull = func() (events.Recorded, error, bool) { return e, err, true } // the next call must fail too
		return err
	case there:
		b.ready = []jetlog.Message{jetlog.DecodedMessage(&e)}
	default:
		b.after = b.end
	}
	return nil
}

// goLive lets the backlog take what comes from the follower that others read with too, unless it reads one session.
func (b *backlog) goLive(f *follower.Follower) {
	if b.pull != nil {
		return
	}
	if b.tail != nil {
		b.tail.Close()
	}
	last := b.after
	if len(b.ready) > 0 {
		last = b.ready[len(b.ready)-1].Position.Seq
	}
	b.tail = f.Events(b.partition, last, b.options)
}

// readBriefly is like read, but returns context.DeadlineExceeded when no message comes for a while.
func (b *backlog) readBriefly(ctx context.Context) error {
	if b.tail == nil {
		if err := b.open(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stillFor)
	defer cancel()
	return b.read(ctx)
}

// read waits for the next messages.
func (b *backlog) read(ctx context.Context) (err error) {
	if b.tail == nil {
		if err := b.open(ctx); err != nil {
			return err
		}
	}
	b.ready, err = b.tail.Next(ctx)
	return err
}

// take returns the next message. The caller has made sure that there is one.
func (b *backlog) take() jetlog.Message {
	m := b.ready[0]
	b.ready = b.ready[1:]
	b.after = m.Position.Seq
	return m
}

func (b *backlog) close() {
	if b.stop != nil {
		b.stop()
	}
	if b.tail != nil {
		b.tail.Close()
	}
}
