package write

import (
	"context"
	"iter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/room"
)

// Log is what the command side needs of the log: one interface for each use.
type Log struct {
	Writer
	Reader
	Glance
	TailReader
}

// On returns the parts of a log that is kept in JetStream.
func On(l *jetlog.Log) Log { return Log{l, l, l, l} }

// Writer appends what a write has decided.
type Writer interface {
	Partition(id string) int
	Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error)
	Durable(ctx context.Context, at events.Position) error
}

// Reader reads what a decision rests on.
type Reader interface {
	Head(ctx context.Context, partition int) (events.Position, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	IdentityErasure(
		ctx context.Context, identityID string, upTo events.Position,
	) (*events.IdentityErased, events.Position, error)
	IdentityErasedNow(ctx context.Context, identityID string) (*events.IdentityErased, error)
}

// Glance is a quick look at what the log seems to know. It is no proof.
type Glance interface {
	Seen(ctx context.Context, sessionID string) (uint64, error)
	Unseen(ctx context.Context, sessionIDs []string) []string
}

// TailReader reads what keeps the sessions in memory as new as the log.
type TailReader interface {
	Partitions() int
	Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error)
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	SeqAt(ctx context.Context, partition int, since time.Time) (uint64, error)
	Reached(ctx context.Context, read *jetlog.Watermark, at events.Position) error
	Room() *room.Room
}
