package services

import (
	"context"

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
