package projections

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Projection is a view that is built from the log.
//
// Apply and Park commit their rows together with batch.To as the partition's
// checkpoint, or nothing at all, and only where the stored checkpoint still has the
// sequence and epoch of batch.From; else ErrFenced. An error that trying again
// can't mend is wrapped by Permanent.
type Projection interface {
	Name() string
	// Claim takes a partition over: it raises the epoch of the stored checkpoint and
	// returns it; a new partition has sequence 0.
	Claim(ctx context.Context, partition int) (Checkpoint, error)
	Apply(ctx context.Context, b Batch) error
	// Park keeps the one event of b as a dead letter (position, id, type and reason;
	// never its text) and moves the checkpoint past it.
	Park(ctx context.Context, b Batch, reason string) error
}

// Checkpoint says up to where a projection has applied a partition: the stream by
// the time it was made, the sequence, the event id there, and who may go on.
type Checkpoint struct {
	Partition int
	Created   time.Time
	Seq       uint64
	EventID   string
	Epoch     uint64
}

// Position of the checkpoint in the log.
func (c Checkpoint) Position() events.Position {
	return events.Position{Partition: c.Partition, Seq: c.Seq}
}

// Batch is a run of events of one partition, in order, each with its verdict.
type Batch struct {
	From, To Checkpoint
	Events   []Judged
}

// Judged is an event with the fold's verdict. Change.Turn and Change.Turns are the
// event's own copies; a turn that the event opened or answered carries that half's
// text, others none.
type Judged struct {
	events.Recorded
	Change conversation.Change
	// Head of the session after the event, First whether it is the session's first.
	Head  conversation.Head
	First bool
}
