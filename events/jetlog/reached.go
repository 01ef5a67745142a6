package jetlog

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

// stillFor is how long a reader that waits for a position looks at nothing but its mark.
const stillFor = 100 * time.Millisecond

// Reached waits until a reader of a partition, whose mark rises with what it has read,
// has read everything up to a position. What the mark waits for may have been erased and
// never come: then the mark is raised over it.
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
