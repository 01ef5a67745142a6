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
	"github.com/turnledger/turnledger/projections"
)

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

// Expires tells when a session leaves the view: its TTL after its last activity, or
// after it was erased.
func (l Limits) Expires(h conversation.Head) time.Time {
	last := h.LastActive
	if h.ErasedAt.After(last) {
		last = h.ErasedAt
	}
	return last.Add(l.TTL)
}

// View is a recent-turns view. Load is safe for concurrent use, also with Apply.
//
// A partition without a checkpoint may be begun anywhere: its first batch, of the
// epoch last claimed, is taken whatever the sequence of batch.From. Sessions that
// began before it are held in part. Park gives its event's session up to the log.
type View interface {
	projections.Projection
	// Load gives the newest turns of a session: enough of them that at least shown
	// finalized ones are among them, or all that the view holds; all if shown < 0.
	// Its cost grows with shown and not with the number or length of sessions.
	Load(ctx context.Context, sessionID string, partition, shown int) (Snapshot, error)
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
