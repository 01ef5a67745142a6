package eraser

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
)

const maxSeq = math.MaxUint64

// stillFor is how long nothing comes before the log is asked whether anything will:
// the last events may have been erased.
const stillFor = 250 * time.Millisecond

// each hands on the events of a partition that are there now, after a sequence, in
// order.
func each(ctx context.Context, log Log, partition int, after uint64, f func(jetlog.Message) error) error {
	head, err := log.Head(ctx, partition)
	if err != nil {
		return err
	}
	return until(ctx, log, partition, after, head.Seq, f)
}

// until hands on those up to a sequence that the log has reached.
func until(ctx context.Context, log Log, partition int, after, end uint64, f func(jetlog.Message) error) error {
	if still, err := log.Still(ctx, partition, after, end); err != nil || still {
		return err
	}
	tail, err := log.Tail(ctx, partition, after, jetlog.TailOptions{MaxBatch: 4000})
	if err != nil {
		return err
	}
	defer tail.Close()
	for after < end {
		brief, cancel := context.WithTimeout(ctx, stillFor)
		batch, err := tail.Next(brief)
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			if still, err := log.Still(ctx, partition, after, end); err != nil || still {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range batch {
			if m.Position.Seq > end {
				return nil
			}
			if err := f(m); err != nil {
				return err
			}
			after = m.Position.Seq
		}
	}
	return nil
}
