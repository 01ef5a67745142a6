package projections

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Sink is what can be filled with the log: rows of some store, or what an effect does outside.
//
// Apply commits its rows together with batch.To as the partition's checkpoint, or nothing at all, and only
// where the stored checkpoint still has the sequence and epoch of batch.From; else ErrFenced. A batch without
// events moves the checkpoint. An error that trying again can't mend is wrapped by Permanent: the runner then
// keeps the event as a dead letter, and applies a batch that passes it by (Batch.Parked).
type Sink interface {
	// Name of the projection: [a-z0-9_-], at most 32. One log has each name once.
	Name() string
	// Claim takes a partition over: it raises the epoch of the stored checkpoint and returns the checkpoint; a
	// new partition has sequence 0.
	Claim(ctx context.Context, partition int) (Checkpoint, error)
	Apply(ctx context.Context, b Batch) error
}

// Projection is a Sink that a runner feeds.
type Projection interface {
	Sink
	// Applied returns the position of the stored checkpoint, whoever moved it there; it claims nothing.
	Applied(ctx context.Context, partition int) (events.Position, error)
}

// Task is the variant of a Projection for work that is done later than it is asked for, and that two
// processes may do twice: the eraser. A runner shows it each event, parks none, and fences nobody.
type Task interface {
	Name() string
	// Resume returns up to where the work of a partition is done, by whichever process. The runner begins there.
	Resume(ctx context.Context, partition int) (Checkpoint, error)
	// Take notes what a batch asks for. It fails only where trying again may help.
	Take(ctx context.Context, b Batch) error
	// Applied returns up to where the work is done; what a process has only taken does not count.
	Applied(ctx context.Context, partition int) (events.Position, error)
}

// Checkpoint says up to where a projection has applied a partition: the stream by
// the time it was made, the sequence, the event id there, and who may go on.
type Checkpoint struct {
	Partition int
	Created   time.Time
	Seq       uint64
	EventID   string
	Epoch     uint64
	// Store and Generation identify whose checkpoint it is: the id that the store has given itself, and the generation
	// of its rows. A projection that has one store and no generations leaves both out.
	Store      string
	Generation uint64
}

// Position of the checkpoint in the log.
func (c Checkpoint) Position() events.Position {
	return events.Position{Partition: c.Partition, Seq: c.Seq}
}

// Batch is a run of events of one partition, in order, each with its verdict.
type Batch struct {
	From, To Checkpoint
	Events   []Judged
	// Parked are events between From and To that became dead letters. They bring no rows; a view that answers
	// for whole sessions no longer answers for theirs, until Restore.
	Parked []Judged
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
