// Package recent is the contract of the recent-turns view: the last turns of active sessions, for prompts. Package
// memory keeps it in the process, package redis in a Redis; recenttest runs the same suite on every backend.
//
// A view never answers for what it does not hold: its Snapshot says up to which position it has applied the log, and
// whether it holds the session whole. Redacted and replaced turns leave the view at once. A session leaves the view
// when its last activity is longer ago than the TTL, by recorded time.
package recent

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Name of the view, whatever keeps it.
const Name = "recent"

// Letters bounds the dead letters that a view keeps of a partition. More are not needed: the view's sessions expire,
// and their gaps with them.
const Letters = 1000

// Limits of a view.
type Limits struct {
	// TTL since a session's last activity; 24 h by default.
	TTL time.Duration
	// MaxTurns bounds the turns of a session, on every append; 500 by default.
	MaxTurns int
}

// WithDefaults sets defaults for zero fields.
func (l Limits) WithDefaults() Limits {
	if l.TTL == 0 {
		l.TTL = 24 * time.Hour
	}
	if l.MaxTurns == 0 {
		l.MaxTurns = 500
	}
	return l
}

// Expires returns when a session leaves the view: its TTL after its last activity, or after its erasure. A session
// that was only described leaves it its TTL after it began.
func (l Limits) Expires(h session.Head) time.Time {
	last := h.LastActive
	if last.IsZero() {
		last = h.CreatedAt
	}
	if h.ErasedAt.After(last) {
		last = h.ErasedAt
	}
	return last.Add(l.TTL)
}

// Trim reduces a folded session to what a view holds: no tombstones, no replaced turns, and the newest of the rest.
func (l Limits) Trim(s *session.State) {
	s.Remove(func(t *session.Turn) bool {
		return t.Status == session.Redacted || t.Status == session.Replaced
	})
	s.DropOldest(l.MaxTurns)
}

// Reader is the side of a recent-turns view for readers. It is safe for concurrent use, also with Apply.
//
// A view without a checkpoint in a partition may begin at any sequence (fleet.Entry.Start): it takes the first batch of
// the epoch last claimed, whatever the sequence of batch.From. It holds sessions that began before only in part.
//
// When an event is parked, its session is left to the log: the view drops the session, and begins it again, not whole,
// with the session's next event. Restore settles all dead letters of a session.
type Reader interface {
	Loader
	// Wait blocks until the view has applied a position. It returns an error if ctx ends or the view's store fails
	// first.
	Wait(ctx context.Context, at events.Position) error
}

// Loader loads sessions.
type Loader interface {
	// Load returns the newest turns of a session: enough that at least shown finalized turns are among them, or with
	// AllTurns all that the view holds. Its cost grows with shown, not with the number or length of sessions.
	Load(ctx context.Context, sessionID string, partition, shown int) (Snapshot, error)
}

// AllTurns asks a Loader for all turns that it holds.
const AllTurns = -1

// A Load of noSession and noTurns reads the position alone: no session has an empty id.
const (
	noSession = ""
	noTurns   = 0
)

// Applied returns the position up to which a view has applied a partition, with the freshness of a Load.
func Applied(ctx context.Context, l Loader, partition int) (events.Position, error) {
	snap, err := l.Load(ctx, noSession, partition, noTurns)
	return snap.Applied, err
}

// Snapshot is what a view holds of a session. State is the caller's own copy, or nil if the view does not hold the
// session, and then the caller must ask the log. State includes all events of the session up to Applied, and none
// after. It has no tombstones and no replaced turns. A State that is not Whole has the newest of the other turns,
// without a gap.
type Snapshot struct {
	State   *session.State
	Applied events.Position
}

// Guarded is a view that may be closed to readers: while Readable returns an error, they ask the log instead.
type Guarded struct {
	Reader
	Readable func() error
}

// Load returns what the view holds of a session, unless it may not be read.
func (g Guarded) Load(ctx context.Context, sessionID string, partition, shown int) (Snapshot, error) {
	if err := g.Readable(); err != nil {
		return Snapshot{}, err
	}
	return g.Reader.Load(ctx, sessionID, partition, shown)
}
