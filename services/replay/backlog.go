package replay

import (
	"context"
	"iter"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/follower"
)

// backlog reads the events of one partition that a query selects: first the events up to an end that was the
// partition's head, and for a follower the events after it.
type backlog struct {
	log        *jetlog.Log
	partition  int
	after, end uint64
	options    jetlog.TailOptions
	// gaps says whether any of the events is missing for ever.
	gaps jetlog.Gaps

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
	b.gaps = sessionGaps{b.log, id}
	b.pull, b.stop = iter.Pull2(b.log.Session(ctx, id, b.after, b.end))
}

// sessionGaps answers for the events of one session.
type sessionGaps struct {
	log *jetlog.Log
	id  string
}

// Still implements jetlog.Gaps.
func (g sessionGaps) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	head, err := g.log.Head(ctx, partition)
	if err != nil || head.Seq < upTo {
		return false, err
	}
	last, err := g.log.Last(ctx, g.id)
	return err == nil && last <= after, err
}

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
	if b.tail == nil {
		still, err := b.log.Still(ctx, b.partition, b.after, b.end)
		if still {
			b.after = b.end
		}
		if still || err != nil {
			return err
		}
	}
	err := b.read(ctx, b.end)
	if err == nil && len(b.ready) == 0 {
		b.after = b.end
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

// read waits for the next messages up to a sequence, and reads none if none are left; 0: there is no end.
func (b *backlog) read(ctx context.Context, upTo uint64) (err error) {
	if b.tail == nil {
		if b.tail, err = b.log.Tail(ctx, b.partition, b.after, b.options); err != nil {
			b.tail = nil
			return err
		}
	}
	if upTo == 0 {
		b.ready, err = b.tail.Next(ctx)
		return err
	}
	at := events.Position{Partition: b.partition, Seq: b.after}
	b.ready, err = jetlog.Until(ctx, b.gaps, b.tail, at, upTo)
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
