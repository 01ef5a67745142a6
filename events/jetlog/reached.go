package jetlog

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
)

// Watermark is a sequence that only rises, and that callers wait for. The zero value stands at 0. Safe for concurrent
// use.
type Watermark = await.Watermark

// stillFor is how long a reader that waits for a position looks at nothing but its watermark.
const stillFor = 100 * time.Millisecond

// Reached waits until a reader of a partition, whose watermark rises with the events that it has read, has read
// everything up to a position. An erased event never comes: then Reached raises the watermark over it.
func (l *Log) Reached(ctx context.Context, mark *Watermark, at events.Position) error {
	for mark.At() < at.Seq {
		brief, cancel := context.WithTimeout(ctx, stillFor)
		err := mark.Wait(brief, at.Seq)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		still, err := l.Still(ctx, at.Partition, mark.At(), at.Seq)
		if err != nil {
			return err
		}
		if still {
			mark.Advance(at.Seq)
		}
	}
	return nil
}
