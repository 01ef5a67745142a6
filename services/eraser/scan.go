package eraser

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

const maxSeq = math.MaxUint64

// mostRest bounds one rest of a gentle scan.
const mostRest = 250 * time.Millisecond

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
		after := events.Position{Partition: s.partition, Seq: s.after}
		opts := jetlog.TailOptions{HeadersOnly: !s.bodies, MaxBatch: 4000}
		began := time.Now()
		for batch, err := range jetlog.Between(ctx, s.log, after, end, opts) {
			for _, m := range batch {
				if !yield(m, nil) {
					return
				}
			}
			if err == nil && s.gentle && !pause.For(ctx, min(time.Since(began), mostRest)) {
				err = ctx.Err()
			}
			if err != nil {
				yield(jetlog.Message{}, err)
				return
			}
			began = time.Now()
		}
	}
}
