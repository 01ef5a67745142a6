package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

// EventQuery says which events are wanted. Zero values are no bounds.
type EventQuery struct {
	// SessionID asks for the events of one session, IdentityID for those of all sessions that are
	// linked to it, also the ones from before their link. One of the two at most.
	SessionID, IdentityID string
	// Types are event types of the catalogue.
	Types []string
	// From is where a reading ended that this one goes on after; To is the last position wanted.
	// At most one of a partition; a partition that is not named has no bound.
	From, To []events.Position
	// Min are positions that the log must hold, else ErrPositionNotReached.
	Min []events.Position
	// Since is the first time wanted, Until the first one not wanted, both in recorded time.
	Since, Until time.Time
	// Follow goes on with new events, for ever or until To or Until is reached.
	Follow bool
}

// Event is a CloudEvent in JSON form, on one line. JSON is valid until the next call of
// EventStream.Next.
type Event struct {
	Position events.Position
	JSON     []byte
}

// EventStream is one reading of the log, for one reader. Next returns events until io.EOF, and
// may be called again when its ctx ended. Position is how far the reading is, what the query
// leaves out included.
type EventStream interface {
	Next(ctx context.Context) ([]Event, error)
	From() events.Cursor
	End() events.Cursor
	Position() events.Cursor
	Close()
}

// EventReader reads the log. Errors of OpenEvents are ErrPositionNotReached,
// *conversation.Invalid, and those of events/jetlog; ctx lives as long as the reading.
type EventReader interface {
	OpenEvents(ctx context.Context, q EventQuery) (EventStream, error)
}
