package jetlog

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/pause"
)

// Tailer opens tails. A Log is one.
type Tailer interface {
	Tail(ctx context.Context, partition int, after uint64, opts TailOptions) (*Tail, error)
}

// Watermark is a sequence that only rises, and that callers wait for. The zero value stands at 0. Safe for concurrent
// use.
type Watermark = await.Watermark

// Source brings the events of a partition, in order. A Tail is one.
type Source[E any] interface {
	Next(ctx context.Context) ([]E, error)
}

// Gaps answers whether events are missing for ever. A Log does.
type Gaps interface {
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
}

// Until returns what a source brings next, which has brought the events up to after. It returns nothing once the log
// has no event left up to a sequence: what was erased never comes. Events behind the sequence may come, too.
func Until[E any](ctx context.Context, log Gaps, from Source[E], after events.Position, upTo uint64) ([]E, error) {
	for after.Seq < upTo {
		var batch []E
		late, err := pause.Within(ctx, stillFor, func(ctx context.Context) (err error) {
			batch, err = from.Next(ctx)
			return err
		})
		if !late {
			return batch, err
		}
		if still, err := log.Still(ctx, after.Partition, after.Seq, upTo); err != nil || still {
			return nil, err
		}
	}
	return nil, nil
}

// Between brings the events of a partition after a position up to a sequence that the log has reached, as they come. It
// ends after an error.
func Between(
	ctx context.Context, log interface {
		Tailer
		Gaps
	}, after events.Position, upTo uint64, opts TailOptions,
) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		still, err := log.Still(ctx, after.Partition, after.Seq, upTo)
		if still {
			return
		}
		var tail *Tail
		if err == nil {
			tail, err = log.Tail(ctx, after.Partition, after.Seq, opts)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer tail.Close()
		for {
			batch, err := Until(ctx, log, tail, after, upTo)
			if n := slices.IndexFunc(batch, func(m Message) bool { return m.Position.Seq > upTo }); n >= 0 {
				batch = batch[:n]
			}
			if len(batch) == 0 && err == nil || !yield(batch, err) || err != nil {
				return
			}
			after = batch[len(batch)-1].Position
		}
	}
}

// stillFor is how long nothing may come before the log is asked whether any event is left.
const stillFor = 250 * time.Millisecond

// reachedAfter is how long a reader only watches its watermark before it asks the log whether any event is left.
const reachedAfter = 100 * time.Millisecond

// Reached waits until a reader of a partition has read everything up to a position. The watermark is the
// reader's, and rises with the events that it has read. It can't rise to an event that was erased: if no event is left
// up to the position, Reached raises the watermark itself.
func (l *Log) Reached(ctx context.Context, watermark *Watermark, at events.Position) error {
	for watermark.At() < at.Seq {
		brief, cancel := context.WithTimeout(ctx, reachedAfter)
		err := watermark.Wait(brief, at.Seq)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		still, err := l.Still(ctx, at.Partition, watermark.At(), at.Seq)
		if err != nil {
			return err
		}
		if still {
			watermark.Advance(at.Seq)
		}
	}
	return nil
}
