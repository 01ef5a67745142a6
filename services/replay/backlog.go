package replay

import (
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
)

// backlog is what a partition holds after a sequence and up to an end that was its
// head. The last events may have been erased, so that the one at the end never comes:
// when nothing comes for a while the log is asked what there is.
type backlog struct {
	log       *jetlog.Log
	partition int
	after     uint64
	end       uint64
	options   jetlog.TailOptions

	tail  *jetlog.Tail
	ready []jetlog.Message
}

// stillFor is how long nothing comes before the log is asked.
const stillFor = 250 * time.Millisecond

// more makes sure that there is a next message, and tells whether there is one. What
// is behind the end is not among them; it stays for a follower.
func (b *backlog) more(ctx context.Context) (bool, error) {
	for len(b.ready) == 0 {
		if b.after >= b.end {
			return false, nil
		}
		if b.tail == nil {
			if err := b.open(ctx); err != nil {
				return false, err
			}
			continue
		}
		if err := b.fill(ctx); err != nil {
			return false, err
		}
	}
	return b.ready[0].Position.Seq <= b.end, nil
}

func (b *backlog) open(ctx context.Context) (err error) {
	next, found, err := b.log.After(ctx, b.partition, b.after)
	if err != nil {
		return err
	}
	if !found || next > b.end {
		b.after = max(b.after, b.end)
		return nil
	}
	b.tail, err = b.log.Tail(ctx, b.partition, b.after, b.options)
	return err
}

func (b *backlog) fill(ctx context.Context) error {
	brief, cancel := context.WithTimeout(ctx, stillFor)
	defer cancel()
	batch, err := b.tail.Next(brief)
	if err == nil {
		b.ready = batch
		return nil
	}
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	next, found, err := b.log.After(ctx, b.partition, b.after)
	if err == nil && (!found || next > b.end) {
		b.after = b.end
	}
	return err
}

// take gives the next message, which more has found.
func (b *backlog) take() jetlog.Message {
	m := b.ready[0]
	b.ready = b.ready[1:]
	b.after = m.Position.Seq
	return m
}

func (b *backlog) close() {
	if b.tail != nil {
		b.tail.Close()
	}
}

// wait makes sure that there is a next message, however long that takes; where it is to be brief, context.DeadlineExceeded says
// that none has come for a while.
func (b *backlog) wait(ctx context.Context, brief bool) (err error) {
	if len(b.ready) > 0 {
		return nil
	}
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
