package eraser

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

const maxSeq = math.MaxUint64

// stillFor is how long a scan waits without a message before it asks the log whether any event is left: the last events
// may have been erased.
const stillFor = 250 * time.Millisecond

// scan reads a partition after a sequence: only the headers of its events, or with bodies all of each event.
type scan struct {
	log       Log
	partition int
	after     uint64
	bodies    bool
	// gentle: after each read the scan rests for as long as the read took, since writers come first.
	gentle bool
}

// until returns the events up to a sequence that the log has reached, in order. If it yields an error, it ends there.
func (s scan) until(ctx context.Context, end uint64) iter.Seq2[jetlog.Message, error] {
	return func(yield func(jetlog.Message, error) bool) {
		if err := s.each(ctx, end, func(m jetlog.Message) bool { return yield(m, nil) }); err != nil {
			yield(jetlog.Message{}, err)
		}
	}
}

// each calls yield with the events up to a sequence until yield returns false.
func (s scan) each(ctx context.Context, end uint64, yield func(jetlog.Message) bool) error {
	if still, err := s.log.Still(ctx, s.partition, s.after, end); err != nil || still {
		return err
	}
	tail, err := s.log.Tail(ctx, s.partition, s.after, jetlog.TailOptions{HeadersOnly: !s.bodies, MaxBatch: 4000})
	if err != nil {
		return err
	}
	defer tail.Close()
	for s.after < end {
		began := time.Now()
		brief, cancel := context.WithTimeout(ctx, stillFor)
		batch, err := tail.Next(brief)
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			if still, err := s.log.Still(ctx, s.partition, s.after, end); err != nil || still {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range batch {
			if m.Position.Seq > end || !yield(m) {
				return nil
			}
			s.after = m.Position.Seq
		}
		if s.gentle && !pause.For(ctx, min(time.Since(began), stillFor)) {
			return ctx.Err()
		}
	}
	return nil
}
