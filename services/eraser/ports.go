package eraser

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/owners"
)

const (
	maxSeq = math.MaxUint64
	// scannedAtOnce bounds the events of one read of a scan.
	scannedAtOnce = 4000
)

// headers has a scan read only the headers of events.
var headers = jetlog.TailOptions{HeadersOnly: true, MaxBatch: scannedAtOnce}

// Log is what erasures, receipts and retention need of the log: one interface for each use.
type Log struct {
	Reader
	Scanner
	Writer
	Overwriter
	Mirrored
}

// On returns the parts of a log that is kept in JetStream.
func On(l *jetlog.Log) Log {
	over := overwrite.On(l)
	return Log{l, l, l, over, over}
}

// Reader reads facts about sessions and identities.
type Reader interface {
	Partitions() int
	Created(partition int) time.Time
	Head(ctx context.Context, partition int) (events.Position, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	Identity(ctx context.Context, identityID string) iter.Seq2[events.Recorded, error]
	IdentityErasure(
		ctx context.Context, identityID string, upTo events.Position,
	) (*events.IdentityErased, events.Position, error)
}

// Scanner looks through a partition.
type Scanner interface {
	Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error)
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	SeqAt(ctx context.Context, partition int, since time.Time) (uint64, error)
	Last(ctx context.Context, sessionID string) (uint64, error)
}

// Writer closes the sessions of an identity and writes receipts down.
type Writer interface {
	Warm(ctx context.Context, sessionID string) error
	Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error)
	Durable(ctx context.Context, at events.Position) error
}

// Overwriter removes events from the log: Erase removes one event, Purge the events of a session up to a sequence.
// Their bytes are gone from the disk after Settle, or SettlePurge.
type Overwriter interface {
	Erase(ctx context.Context, at events.Position) (bool, error)
	Settle(ctx context.Context, partition int) error
	Purge(ctx context.Context, sessionID string, upTo uint64) (int, error)
	SettlePurge(ctx context.Context, partition int) error
	// Nodes returns the servers that hold the log, by their names.
	Nodes(ctx context.Context) (map[string]overwrite.Node, error)
}

// Mirrored takes events out of the mirrors of the log.
type Mirrored interface {
	Mirrors(ctx context.Context, subject string, at events.Position) ([]string, error)
	LeftIn(ctx context.Context, mirror, sessionID string, upTo uint64) ([]uint64, error)
	EraseIn(ctx context.Context, mirror string, seq uint64) error
}

// Owners returns the sessions of a partition that belong to an identity, in log order, and says of a session whether
// it ever had links, summaries and branches. Reached waits until it knows all up to a position. owners.Index implements
// it.
type Owners interface {
	Reached(ctx context.Context, at events.Position) error
	Sessions(ctx context.Context, identity string, partition int) ([]owners.Linked, error)
	Had(session string) owners.Had
}

// Place is a view that keeps texts and follows the log. Once it has applied a redaction or an erasure, it no longer
// holds the texts of that turn or session.
type Place interface {
	// Name of the place in receipts: [a-z0-9_-], at most 32.
	Name() string
	// Reached reports whether the place has applied the log up to a position.
	Reached(ctx context.Context, at events.Position) (bool, error)
}

// Documents is a store that holds one document for each turn, such as a long-term memory. DeleteTurns is called before
// the log forgets which turns there were, and again after a crash, so deleting a missing document is no error. It
// returns nil when the store has confirmed. After an error the erasure waits, and other erasures go first. A store that
// follows the log by itself returns an error until it has applied the event at position at.
type Documents interface {
	DeleteTurns(ctx context.Context, at events.Position, sessionID string, turns []uuid.UUID) error
}
