package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
)

var (
	// ErrRebuilding: somebody, in this process or another, is filling a new generation
	// of the projection.
	ErrRebuilding = errors.New("the projection is being rebuilt already: see turnledger projections list")
	// ErrBehind: the served generation has applied more than the new one.
	ErrBehind = errors.New("the served generation is further")
)

// Rebuildable is a projection of which a new generation can be filled beside the
// one that is served, while reads and its runner go on (DESIGN §5 "Rebuild").
type Rebuildable interface {
	Projection
	// Served gives the number of the generation that is served, from 1, and the
	// checkpoint of each partition that it has begun; it claims nothing.
	Served(ctx context.Context) (number uint64, at []Checkpoint, err error)
	// NewGeneration begins an empty generation, after what an earlier rebuild left
	// behind has been removed. ErrRebuilding where another one is being filled.
	NewGeneration(ctx context.Context) (Generation, error)
	// DeadLetters of the served generation, as DeadLetterQueue gives them.
	DeadLetters(ctx context.Context) ([]DeadLetter, error)
}

// Generation is a projection in a place of its own, filled by one rebuild. It holds
// off other rebuilds until Drop.
type Generation interface {
	Projection
	// Number of the generation; above that of every earlier one.
	Number() uint64
	// Swap makes it the served one, in one step for every reader, and fences the
	// runners of the former one. Where the former one is further in a partition it does
	// nothing but fence its runners, so that they pause, and returns ErrBehind: catch up
	// and swap again. Anyway is for a former one that follows another stream.
	Swap(ctx context.Context, anyway bool) error
	// DropDeadLetter keeps, of an event that is parked in the generation too, who dropped it
	// and why (see DeadLetterQueue).
	DropDeadLetter(ctx context.Context, at events.Position, d Drop) (DeadLetter, error)
	// Drop removes the generation that is not served: after Swap the former one, else
	// this one. It may be called again.
	Drop(ctx context.Context) error
}

// StreamReader tells what a checkpoint is held against; *jetlog.Log is one.
type StreamReader interface {
	// Created is when a partition's stream was made.
	Created(partition int) time.Time
	Head(ctx context.Context, partition int) (events.Position, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
}

// SameStream holds a checkpoint against the stream of its partition, by when that
// was made, where it ends, and the event at the checkpoint, unless that was erased.
// ErrStream, with what differs, where it is another or was put back.
func SameStream(ctx context.Context, log StreamReader, cp Checkpoint) error {
	if cp.Seq == 0 {
		return nil
	}
	name := events.StreamName(cp.Partition)
	if !cp.Created.IsZero() && !cp.Created.Equal(log.Created(cp.Partition)) {
		return fmt.Errorf("%w (stream %s was made anew)", ErrStream, name)
	}
	head, err := log.Head(ctx, cp.Partition)
	if err != nil {
		return err
	}
	if head.Seq < cp.Seq {
		return fmt.Errorf("%w (stream %s ends at %d, before %s)", ErrStream, name, head.Seq, cp.Position())
	}
	if cp.EventID == "" {
		return nil
	}
	e, found, err := log.At(ctx, cp.Position())
	if err != nil {
		return err
	}
	if found && e.ID != cp.EventID {
		return fmt.Errorf("%w (another event stands at %s)", ErrStream, cp.Position())
	}
	return nil
}
