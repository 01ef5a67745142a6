package replay

import (
	"context"
	"iter"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/feed"
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
	gaps feed.Gaps

	feed  *feed.Feed[jetlog.Message]
	ready []jetlog.Message
	// pull and stop read the backlog of a single session, which needs no tail.
	pull func() (events.Recorded, error, bool)
	stop func()
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

// Still implements feed.Gaps.
func (g sessionGaps) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	head, err := g.log.Head(ctx, partition)
	if err != nil || head.Seq < upTo {
		return false, err
	}
	last, err := g.log.Last(ctx, g.id)
	return err == nil && last <= after, err
}

// more reports whether there is a next message up to the end; it reads until it knows.
func (b *backlog) more(ctx context.Context) (bool, error) {
	for len(b.ready) == 0 && b.after < b.end {
		if err := b.fill(ctx); err != nil {
			return false, err
		}
	}
	return len(b.ready) > 0, nil
}

// fill reads the next messages up to the end, or moves on to the end when no event is left before it.
func (b *backlog) fill(ctx context.Context) error {
	if b.pull != nil {
		return b.fillSession(ctx)
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
	if b.pull == nil {
		b.from(f.Events(b.partition, b.after, b.options))
	}
}

// from has the backlog read on from a subscription.
func (b *backlog) from(in *follower.Subscription[jetlog.Message]) {
	if b.feed != nil {
		b.feed.Close()
	}
	b.feed = feed.Messages(in, b.gaps, events.Position{Partition: b.partition, Seq: b.after})
}

// read waits for the next messages up to a sequence, and reads none if none are left.
func (b *backlog) read(ctx context.Context, upTo uint64) (err error) {
	if b.feed == nil {
		b.from(follower.Own(b.log, b.partition, b.after, b.options))
	}
	b.ready, err = b.feed.Next(ctx, upTo)
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
	if b.feed != nil {
		b.feed.Close()
	}
}
