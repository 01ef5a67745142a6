package projections

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Sink is something that the log can fill: rows in a store, or an effect on the outside world.
//
// Apply commits its rows together with batch.To as the partition's checkpoint, or nothing at all, and only if the
// stored checkpoint still has the sequence and epoch of batch.From; otherwise it fails with ErrFenced. A batch without
// events moves the checkpoint. Apply marks an error that a retry can't mend with Permanent: the runner then keeps the
// event as a dead letter, and applies a batch that skips it (Batch.Parked).
type Sink interface {
	// Name of the projection: [a-z0-9_-], at most 32 characters, unique among the projections of a log.
	Name() string
	// Claim claims a partition: it raises the epoch of the stored checkpoint and returns the checkpoint; a new
	// partition has sequence 0.
	Claim(ctx context.Context, partition int) (Checkpoint, error)
	Apply(ctx context.Context, b Batch) error
}

// Projection is a Sink that a runner feeds.
type Projection interface {
	Sink
	// Applied returns the position of the stored checkpoint, whichever process moved it. It claims nothing.
	Applied(ctx context.Context, partition int) (events.Position, error)
}

// Task is the variant of a Projection for work that is done later than it is asked for, and that two processes may do
// twice: the eraser. A runner passes it each event. It parks no events and fences no other runner.
type Task interface {
	Name() string
	// Resume returns the position up to which the work of a partition is done, by any process. The runner begins there.
	Resume(ctx context.Context, partition int) (Checkpoint, error)
	// Take notes the work that a batch asks for. It returns only errors that a retry may mend.
	Take(ctx context.Context, b Batch) error
	// Applied returns the position up to which a process has taken the work; Resume says what is done.
	Applied(ctx context.Context, partition int) (events.Position, error)
}

// Checkpoint says how far a projection has applied a partition: the stream, identified by its creation time, the
// sequence, the event id there, and the epoch of the runner that may continue.
type Checkpoint struct {
	Partition int
	Created   time.Time
	Seq       uint64
	EventID   string
	Epoch     uint64
	// Store and Generation identify the owner of the checkpoint: the store's own id, and the generation of its rows. A
	// projection with one store and no generations leaves both empty.
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
	// Parked are events between From and To that became dead letters. They bring no rows. A view that answers for whole
	// sessions no longer answers for theirs, until Restore.
	Parked []Judged
}

// Judged is an event with the fold's verdict. Change.Turn and Change.Turns are the event's own copies. A turn that the
// event opened or answered holds the text that the event brought; other turns hold none.
type Judged struct {
	events.Recorded
	Change session.Change
	// Head of the session after the event. First reports whether the event is the session's first.
	Head  session.Head
	First bool
	// Continues: the event links a session, and the next one is the turn that came with it (jetlog.Message.Continues).
	Continues bool
}

// Size estimates the bytes that the event takes in memory, where nothing else holds what the log had of it.
func (j *Judged) Size() int { return 2<<10 + 2*len(j.Body) }

// VoidSummary reports whether the event is a summary of a session that does not count. It is erased: its text may
// repeat a turn that was redacted.
func (j *Judged) VoidSummary() bool {
	return j.Type == events.TypeSessionSummarized && !j.Change.Kind.ChangesView()
}

// VoidDescription reports whether the event is a description of a session that does not count. Such an event does not
// stay in the log, since it may hold a title that was replaced.
func (j *Judged) VoidDescription() bool {
	return j.Type == events.TypeSessionDescribed && !j.Change.Kind.ChangesView()
}
