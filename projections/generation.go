package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

var (
	// ErrRebuilding: this or another process is filling a new generation of the projection.
	ErrRebuilding = errors.New("the projection is being rebuilt already: see turnledger projections list")
	// ErrNotCaughtUp: the served generation has applied more than the new one.
	ErrNotCaughtUp = errors.New("the served generation is further")
)

// View is a projection that keeps rows in a store, and can be rebuilt from the log.
type View interface {
	Projection
	// Served returns what the store serves now; it claims nothing.
	Served(ctx context.Context) (Served, error)
	// Restore replaces the view's session by the session as the log has it up to a sequence. It returns the positions
	// of the dead letters that this settles. It changes nothing and returns none if the view has not reached that
	// sequence, or has applied or parked more events of the session meanwhile. An error that is Permanent refuses the
	// session.
	Restore(ctx context.Context, s Session) (settled []events.Position, err error)
	// NewReference begins an empty reference for a log with this number of partitions.
	NewReference(ctx context.Context, partitions int) (Reference, error)
}

// Rebuildable is a view whose new generation can be filled beside the served one, while reads and the view's runner
// continue.
type Rebuildable interface {
	// NewGeneration removes what an earlier rebuild has left behind, and begins an empty generation. It fails with
	// ErrRebuilding if the store has another generation that is being filled.
	NewGeneration(ctx context.Context) (Generation, error)
}

// Served is what a store serves: the store's own id, the number of the generation, from 1, and the checkpoint of each
// partition that has one.
type Served struct {
	Store      string
	Generation uint64
	At         []Checkpoint
}

// Of returns the checkpoint of a partition, empty if there is none.
func (s Served) Of(partition int) Checkpoint {
	for _, cp := range s.At {
		if cp.Partition == partition {
			return cp
		}
	}
	return Checkpoint{Partition: partition, Store: s.Store, Generation: s.Generation}
}

// Session is a session as the log has it up to a sequence, for View.Restore. An event that is on no session's subject
// gets a Session of its own, without an id.
type Session struct {
	ID        string
	Partition int
	UpTo      uint64
	// Letter is the letter to retry. Letters are all letters of the session up to the sequence, including Letter.
	Letter  events.Position
	Letters []events.Position
	// State is folded from all events, and the view may keep and change it. Events leave out those of the other
	// letters.
	State  *session.State
	Events []Judged
}

// Generation is a second copy of a projection, filled by one rebuild.
type Generation interface {
	Sink
	// Number of the generation; higher than every earlier one.
	Number() uint64
	// Swap makes this generation the served one, in one step for every reader, and fences the runners of the former
	// one. If the former generation is further in a partition, Swap only fences its runners, so that they pause, and
	// returns ErrNotCaughtUp; the caller catches up and swaps again. With PassFormer it skips that check.
	Swap(ctx context.Context, check SwapCheck) error
	// Drop removes the generation that is not served: after Swap the former one, otherwise this one. It may be called
	// again.
	Drop(ctx context.Context) error
}

// SwapCheck says whether a Swap waits until the new generation is as far as the former one.
type SwapCheck bool

const (
	// ReachFormer: the former generation follows the same stream, so the new one must be as far.
	ReachFormer SwapCheck = false
	// PassFormer: the former generation follows another stream, whose positions say nothing.
	PassFormer SwapCheck = true
)

// StreamReader returns what SameStream compares a checkpoint with; *jetlog.Log implements it.
type StreamReader interface {
	// Created is when a partition's stream was made.
	Created(partition int) time.Time
	Head(ctx context.Context, partition int) (events.Position, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
}

// SameStream fails with ErrStream if the stream of a checkpoint's partition is another stream than the checkpoint's, or
// was restored from an older copy. The error names the difference: the time at which the stream was made, an end before
// the checkpoint, or another event at the checkpoint. An erased event proves nothing.
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
