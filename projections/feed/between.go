package feed

import (
	"context"
	"iter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/follower"
)

// Log is what Between reads. A jetlog.Log is one.
type Log interface {
	jetlog.Tailer
	Gaps
}

// Pace says whether a reading leaves the log to its writers for as long as each read takes.
type Pace bool

// The two ways.
const (
	Fast   Pace = false
	Gentle Pace = true
)

// mostRest bounds one rest of a gentle reading.
const mostRest = 250 * time.Millisecond

// Between returns the events of a partition after a position up to a sequence that the log has reached, in order. It
// ends after an error.
func Between(
	ctx context.Context, log Log, after events.Position, upTo uint64, opts jetlog.TailOptions, pace Pace,
) iter.Seq2[jetlog.Message, error] {
	return func(yield func(jetlog.Message, error) bool) {
		f := Messages(follower.Own(log, after.Partition, after.Seq, opts), log, after)
		defer f.Close()
		for {
			began := time.Now()
			batch, err := f.Next(ctx, upTo)
			for _, m := range batch {
				if !yield(m, nil) {
					return
				}
			}
			if err == nil && pace == Gentle && !pause.For(ctx, min(time.Since(began), mostRest)) {
				err = ctx.Err()
			}
			if err != nil {
				yield(jetlog.Message{}, err)
			}
			if err != nil || len(batch) == 0 {
				return
			}
		}
	}
}
