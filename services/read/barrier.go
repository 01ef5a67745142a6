package read

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
)

// Ends says where the partitions of a log end.
type Ends interface {
	Partitions() int
	Head(ctx context.Context, partition int) (events.Position, error)
}

// PollPause is the pause between two looks at a position.
const PollPause = 10 * time.Millisecond

// Reached waits until a log holds positions, or until the context waiting ends.
func Reached(ctx, waiting context.Context, log Ends, least []events.Position) error {
	for _, p := range least {
		if p.Partition >= log.Partitions() {
			return fmt.Errorf("%w: the log has %d partitions", services.ErrPositionNotReached, log.Partitions())
		}
		head, err := log.Head(ctx, p.Partition)
		for ; err == nil && head.Seq < p.Seq; head, err = log.Head(ctx, p.Partition) {
			if !pause.For(waiting, PollPause) {
				return fmt.Errorf("%w: partition %d ends at %s", services.ErrPositionNotReached, p.Partition, head)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Gaps says whether a partition of a log has no event between two sequences any more.
type Gaps interface {
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
}

// Behind returns the first of some positions whose events a view at other positions does not hold, or nil. Events that
// were erased never reach a view, and one that has nothing of a partition may not even name it.
func Behind(ctx context.Context, log Gaps, at, least []events.Position) *events.Position {
	for i, p := range least {
		n := slices.IndexFunc(at, func(is events.Position) bool { return is.Partition == p.Partition })
		held := uint64(0)
		if n >= 0 {
			held = at[n].Seq
		}
		if held >= p.Seq {
			continue
		}
		if still, err := log.Still(ctx, p.Partition, held, p.Seq); err != nil || !still {
			return &least[i]
		}
	}
	return nil
}
