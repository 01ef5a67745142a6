package jetlog

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
)

// Tailer opens tails. A Log is one.
type Tailer interface {
	Tail(ctx context.Context, partition int, after uint64, opts TailOptions) (*Tail, error)
}

// Watermark is a sequence that only rises, and that callers wait for. The zero value stands at 0. Safe for concurrent
// use.
type Watermark = await.Watermark

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
