package eraser

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Log is what the eraser needs of the log; *jetlog.Log is one.
type Log interface {
	Partitions() int
	Partition(id string) int
	Created(partition int) time.Time
	Head(ctx context.Context, partition int) (events.Position, error)
	Last(ctx context.Context, sessionID string) (uint64, error)
	After(ctx context.Context, partition int, seq uint64) (uint64, bool, error)
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	SeqAt(ctx context.Context, partition int, since time.Time) (uint64, error)
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	Identity(ctx context.Context, identityID string) iter.Seq2[events.Recorded, error]
	IdentityErasure(ctx context.Context, identityID string, upTo events.Position) (*events.IdentityErased, events.Position, error)
	Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error)
	Warm(ctx context.Context, sessionID string) error
	Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error)
	Durable(ctx context.Context, at events.Position) error
	Erase(ctx context.Context, at events.Position) (bool, error)
	Mirrors(ctx context.Context, subject string, at events.Position) ([]string, error)
	LeftIn(ctx context.Context, mirror, sessionID string, upTo uint64) ([]uint64, error)
	EraseIn(ctx context.Context, mirror string, seq uint64) error
	Purge(ctx context.Context, sessionID string, upTo uint64) (int, error)
	Settle(ctx context.Context, partition int) error
	SettlePurge(ctx context.Context, partition int) error
}

var _ Log = (*jetlog.Log)(nil)

// Place is somewhere else than the log where texts are kept, and that follows the log:
// a view. What it holds of a turn or a session is gone when it has applied the event
// that says so.
type Place interface {
	// Name of the place in receipts: [a-z0-9_-], at most 32.
	Name() string
	// Reached tells whether the place has applied the log up to a position.
	Reached(ctx context.Context, at events.Position) (bool, error)
}

// Documents is a store that holds a document of its own for each turn, such as a
// long-term memory. DeleteTurns is called before the log forgets which turns there were,
// and again after a crash: deleting what is not there is no error. It returns nil when
// the store has confirmed; an error lets the erasure wait, and others go first. One that
// follows the log by itself says so by an error until it has done the event at at.
type Documents interface {
	Name() string
	DeleteTurns(ctx context.Context, at events.Position, sessionID string, turns []uuid.UUID) error
}
