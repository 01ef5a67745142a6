package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

// EventQuery selects events. Zero values are no bounds.
type EventQuery struct {
	// SessionID selects the events of one session. IdentityID selects those of all sessions that are linked to the
	// identity, including events from before the link. At most one of the two may be set.
	SessionID, IdentityID string
	// Own says whether those of the identity itself are among them.
	Own OwnEvents
	// Types are event types of the catalogue.
	Types []string
	// From is the position after which the reading begins, usually where an earlier one ended; To is the last position
	// wanted. Each holds at most one position per partition; a partition that is not named has no bound.
	From, To []events.Position
	// Min are positions that the log must have reached; otherwise the reading fails with ErrPositionNotReached.
	Min []events.Position
	// Since is the first recorded time wanted, Until the first one not wanted.
	Since, Until time.Time
	// Follow continues with new events, for ever or until To or Until is reached.
	Follow bool
}

// OwnEvents says whether a reading of an identity's sessions has the events that concern the identity and no single
// session, too: its erasure, and the receipts of that.
type OwnEvents int

// The two readings.
const (
	WithoutOwn OwnEvents = iota
	WithOwn
)

// Event is a CloudEvent in JSON form, on one line. JSON is valid until the next call of
// EventStream.Next.
type Event struct {
	Position events.Position
	JSON     []byte
}

// EventStream is one reading of the log, for one reader. Next returns events until io.EOF, and may be called again
// after its ctx ended. Position is how far the reading is, including events that the query leaves out.
type EventStream interface {
	Next(ctx context.Context) ([]Event, error)
	From() events.Cursor
	End() events.Cursor
	Position() events.Cursor
	Close()
}

// EventReader reads the log. Errors of OpenEvents are ErrPositionNotReached, *decide.Invalid, and those of
// events/jetlog. ctx must live as long as the reading.
type EventReader interface {
	OpenEvents(ctx context.Context, q EventQuery) (EventStream, error)
}
