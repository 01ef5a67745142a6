package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// Turn is a turn with what its session adds. Position is the position of the event that an answer rests on; in a
// listing it is the position of the turn's start.
type Turn struct {
	session.Turn
	SessionID, IdentityID string
	Position              events.Position
	// Inherited: a branch that was read shares the turn, which stands in the session SessionID.
	Inherited bool
	// Duplicate: the call recorded nothing of the turn. Existed: the log held the turn's start before the call, which
	// may have added the answer.
	Duplicate, Existed bool
	// DroppedMetadata are the keys that are not on the allowlist and were not kept.
	DroppedMetadata []string
}

// TurnOutcome is what became of one command among many: a turn without its texts, or an error.
type TurnOutcome struct {
	Turn Turn
	Err  error
}

// TurnWriter records turns. Its errors are those of events/session and events/jetlog. When
// a method returns without an error, the event that the answer rests on is durable.
type TurnWriter interface {
	StartTurn(ctx context.Context, c decide.Start) (Turn, error)
	// StartTurns does for each command what StartTurn does, those of one session in their order, and returns their
	// outcomes in the order of the commands. After an outcome that is neither a turn nor a refusal, the later commands
	// of the session are not tried, and have the same outcome.
	StartTurns(ctx context.Context, commands []decide.Start) []TurnOutcome
	FinalizeTurn(ctx context.Context, c decide.Finalize) (Turn, error)
	ExtendTurn(ctx context.Context, c decide.Extend) (Turn, error)
	RedactTurn(ctx context.Context, sessionID string, c decide.Redact) (Turn, error)
	// PruneTurn takes messages out of a turn. It returns the turn with what is left, or a tombstone if nothing is. It
	// fails with decide.ErrMessageNotFound if Keep changes no message.
	PruneTurn(ctx context.Context, c decide.Prune) (Turn, error)
	CorrectTurn(ctx context.Context, c decide.Correct) (Turn, error)
}

// IdentityAsk asks for a page of an identity's turns: at most Limit turns, created at or after Since and before Until
// (zero: no bound), from the end of the cursor's page on.
type IdentityAsk struct {
	IdentityID   string
	Since, Until time.Time
	Limit        int
	Cursor       string
	MinPosition  []events.Position
}

// IdentityPage is a page of turns; NextCursor is empty at the end.
type IdentityPage struct {
	Turns      []Turn
	NextCursor string
}

// IdentityReader lists the turns of an identity across its sessions. Its errors are projections.ErrUnavailable,
// ErrPositionNotReached, ErrBehind, and *decide.Invalid for a cursor that it did not return.
type IdentityReader interface {
	IdentityTurns(ctx context.Context, ask IdentityAsk) (IdentityPage, error)
}
