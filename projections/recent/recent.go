// Package recent is the contract of the recent-turns view: the last turns of the
// sessions that are active, for prompts. Package memory keeps it in the process,
// package redis in a Redis; recenttest holds every backend to the same suite.
//
// A view never answers for what it does not hold: its Snapshot says up to which
// position it has applied the log and whether it holds the session whole. Redacted
// and replaced turns leave it at once; a session leaves it when its last activity
// is longer ago than the TTL, by recorded time.
package recent

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Name of the view, whatever keeps it.
const Name = "recent"

// Limits of a view.
type Limits struct {
	// TTL since a session's last activity; 24 h by default.
	TTL time.Duration
	// MaxTurns is kept of a session, enforced on every append; 500 by default.
	MaxTurns int
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	if l.TTL == 0 {
		l.TTL = 24 * time.Hour
	}
	if l.MaxTurns == 0 {
		l.MaxTurns = 500
	}
	return l
}

// Expires reports when a session leaves the view: its TTL after its last activity, or
// after it was erased.
func (l Limits) Expires(h conversation.Head) time.Time {
	last := h.LastActive
	if h.ErasedAt.After(last) {
		last = h.ErasedAt
	}
	return last.Add(l.TTL)
}

// Trim leaves of a folded session what a view holds: no tombstones, no replaced turns,
// and the newest of the rest.
func (l Limits) Trim(s *conversation.State) {
	s.Remove(func(t *conversation.Turn) bool {
		return t.Status == conversation.Redacted || t.Status == conversation.Replaced
	})
	s.DropOldest(l.MaxTurns)
}

// Reader is what readers do with a recent-turns view. It is safe for concurrent use, also with Apply.
//
// A view without a checkpoint in a partition may begin at any sequence (fleet.Entry.Start): it takes the first batch
// of the epoch last claimed, whatever the sequence of batch.From. Sessions that began before it are held in part.
//
// A parked event gives its session up to the log: until the session's next event the view holds none of it, and then
// only what came after. Restore settles all dead letters of a session.
type Reader interface {
	Loader
	// Wait blocks until the view has applied a position; else it ends with ctx and its
	// error, or with that of the view's store.
	Wait(ctx context.Context, at events.Position) error
}

// Loader loads sessions.
type Loader interface {
	// Load returns the newest turns of a session: enough of them that at least shown finalized turns are among them,
	// or all that the view holds, as with AllTurns. Its cost grows with shown and not with the number or length of
	// sessions.
	Load(ctx context.Context, sessionID string, partition, shown int) (Snapshot, error)
}

// AllTurns asks a Loader for all turns that it holds.
const AllTurns = -1

// Applied returns the position up to which a view has applied a partition, with the freshness of a Load.
func Applied(ctx context.Context, l Loader, partition int) (events.Position, error) {
	snap, err := l.Load(ctx, "", partition, 0) // no session has an empty id
	return snap.Applied, err
}

// Snapshot is what a view holds of a session. State is the caller's own copy, nil
// where the view does not hold the session: then the log must be asked. All events
// of the session up to Applied, and none after, are in it. Tombstones and replaced
// turns are not; of the others, a State that is not Whole holds the newest, without
// a gap.
type Snapshot struct {
	State   *conversation.State
	Applied events.Position
}

// Guarded is a view whose readers ask the log while May says why the view may not be read.
type Guarded struct {
	Reader
	May func() error
}

// Load returns what the view holds of a session, unless it may not be read.
func (g Guarded) Load(ctx context.Context, sessionID string, partition, shown int) (Snapshot, error) {
	if err := g.May(); err != nil {
		return Snapshot{}, err
	}
	return g.Reader.Load(ctx, sessionID, partition, shown)
}
