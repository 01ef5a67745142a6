package replay

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// backlog reads what a query wants of one partition: first the events up to an end that was the partition's head, and
// for a follower what comes after them. The last events may have been erased, so that the event at the end never comes.
// So when nothing comes for a while, the backlog asks the log whether events are left before the end.
type backlog struct {
	log        *jetlog.Log
	partition  int
	after, end uint64
	options    jetlog.TailOptions

	tail  *jetlog.Tail
	ready []jetlog.Message
	// pull and stop read the backlog of a single session, which needs no tail.
	pull func() (events.Recorded, error, bool)
	stop func()
}

// ofSession lets the backlog read one session's subject alone.
func (b *backlog) ofSession(ctx context.Context, id string) {
	b.options = jetlog.TailOptions{Subject: events.SessionSubject(id)}
	b.pull, b.stop = iter.Pull2(b.log.Session(ctx, id, b.after, b.end))
}

// stillFor is how long the tail may deliver nothing before the backlog asks the log whether events are left.
const stillFor = 250 * time.Millisecond

// more makes sure that there is a next message up to the end, and reports whether there is one. Messages after the end
// stay for a follower.
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
		err := b.read(ctx, true)
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
		b.tail, err = b.log.Tail(ctx, b.partition, b.after, b.options)
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
		b.pull = func() (events.Recorded, error, bool) { return e, err, true } // a next call must not find an end
		return err
	case there:
		b.ready = []jetlog.Message{jetlog.DecodedMessage(&e)}
	default:
		b.after = b.end
	}
	return nil
}

// read waits for the next messages. With brief it returns context.DeadlineExceeded when none comes for a while.
func (b *backlog) read(ctx context.Context, brief bool) (err error) {
	if b.tail == nil {
		if b.tail, err = b.log.Tail(ctx, b.partition, b.after, b.options); err != nil {
			return err
		}
	}
	if brief {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stillFor)
		defer cancel()
	}
	b.ready, err = b.tail.Next(ctx)
	return err
}

// take returns the next message, which is ready.
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
