package answer

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// States reads a session with all its pending turns. The session is as it is now, or, if known is above 0, as it is
// at that sequence or later; the caller then knows that it needs no later event.
type States interface {
	Session(ctx context.Context, sessionID string, known uint64) (*session.State, error)
}

// Questions reads what was asked.
type Questions interface {
	Question(ctx context.Context, sessionID string, turn uuid.UUID) (*events.Question, error)
}

// Log reads an event.
type Log interface {
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Partitions() int
}

// Presence lets the processes of a deployment know which steps are being answered, by their keys.
type Presence interface {
	// Announce announces that this process answers a step, until leave is called. heard reports whether a caller still
	// waits for the answer.
	Announce(key uuid.UUID, heard func() bool) (leave func(), err error)
	// Present reports whether some process answers a step, and whether a caller of that process waits for the answer.
	Present(ctx context.Context, key uuid.UUID) (present, heard bool, err error)
	// Claimed returns a number that changes with each claim of a step.
	Claimed(ctx context.Context, key uuid.UUID) (uint64, error)
	// Claim takes a step over. It returns false if the step was claimed since Claimed returned the number since.
	Claim(ctx context.Context, key uuid.UUID, since uint64) (bool, error)
}

// Contexts builds prompts.
type Contexts interface {
	// Valid returns the error that Build would return for a bad request. It is called before a message is recorded.
	Valid(r services.ContextRequest) error
	// Settings returns what a prompt was built with.
	Settings(r services.ContextRequest, built *services.Context) services.PromptSettings
	services.ContextBuilder
}
