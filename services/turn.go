package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Turn is a turn with what its session adds. Position is that of the event that an answer
// rests on; in a listing it is that of the turn's start.
type Turn struct {
	conversation.Turn
	SessionID, IdentityID string
	Position              events.Position
	// Duplicate: the log held the turn before the call.
	Duplicate bool
	// DroppedMetadata are the keys that are not on the allowlist and were not kept.
	DroppedMetadata []string
}

// TurnWriter records turns. Its errors are those of events/conversation and events/jetlog. When
// a method returns without an error, the event that the answer rests on is durable.
type TurnWriter interface {
	StartTurn(ctx context.Context, c conversation.Start) (Turn, error)
	FinalizeTurn(ctx context.Context, c conversation.Finalize) (Turn, error)
	RedactTurn(ctx context.Context, sessionID string, c conversation.Redact) (Turn, error)
	CorrectTurn(ctx context.Context, c conversation.Correct) (Turn, error)
}

// IdentityAsk names a page of an identity's turns: at most Limit turns that were created at or
// after Since and before Until (zero: no bound), from where the cursor of the last page ends.
type IdentityAsk struct {
	IdentityID   string
	Since, Until time.Time
	Limit        int
	Cursor       string
	MinPosition  []events.Position
}

// IdentityPage is a page; NextCursor is empty at the end.
type IdentityPage struct {
	Turns      []Turn
	NextCursor string
}

// IdentityReader lists the turns of an identity across its sessions. Its errors are
// projections.ErrUnavailable, ErrPositionNotReached, ErrBehind, and *conversation.Invalid for a
// cursor that it never returned.
type IdentityReader interface {
	IdentityTurns(ctx context.Context, ask IdentityAsk) (IdentityPage, error)
}
