package jetlog

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// Until returns the events of a partition after a position up to a sequence that the log has reached, in order. If it
// yields an error, it ends there.
func Until(ctx context.Context, l interface {
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	Tail(ctx context.Context, partition int, after uint64, opts TailOptions) (*Tail, error)
}, after events.Position, end uint64, opts TailOptions,
) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		over, err := l.Still(ctx, after.Partition, after.Seq, end)
		var tail *Tail
		if err == nil && !over {
			tail, err = l.Tail(ctx, after.Partition, after.Seq, opts)
		}
		if tail != nil {
			defer tail.Close()
		}
		for err == nil && !over && after.Seq < end {
			began := time.Now()
			brief, cancel := context.WithTimeout(ctx, stillFor)
			var batch []Message
			batch, err = tail.Next(brief)
			cancel()
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				over, err = l.Still(ctx, after.Partition, after.Seq, end)
				continue
			}
			for _, m := range batch {
				if m.Position.Seq > end || !yield(m, nil) {
					return
				}
				after.Seq = m.Position.Seq
			}
			if err == nil && opts.Gentle && !pause.For(ctx, min(time.Since(began), stillFor)) {
				err = ctx.Err()
			}
		}
		if err != nil {
			yield(Message{}, err)
		}
	}
}
