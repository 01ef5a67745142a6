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

// scan reads a partition after a sequence: the headers of its events, or with bodies all.
type scan struct {
	log       Log
	partition int
	after     uint64
	bodies    bool
	// gentle: it rests as long as it reads, since writers need the machine more.
	gentle bool
}

// until hands on the events up to a sequence that the log has reached, in order.
func (s scan) until(ctx context.Context, end uint64, f func(jetlog.Message) error) error {
	after := s.after
	if still, err := s.log.Still(ctx, s.partition, after, end); err != nil || still {
		return err
	}
	tail, err := s.log.Tail(ctx, s.partition, after, jetlog.TailOptions{HeadersOnly: !s.bodies, MaxBatch: 4000})
	if err != nil {
		return err
	}
	defer tail.Close()
	for after < end {
		began := time.Now()
		brief, cancel := context.WithTimeout(ctx, stillFor)
		batch, err := tail.Next(brief)
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			if still, err := s.log.Still(ctx, s.partition, after, end); err != nil || still {
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
		if s.gentle && !pause(ctx, min(time.Since(began), stillFor)) {
			return ctx.Err()
		}
	}
	return nil
}
