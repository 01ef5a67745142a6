package chat

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// Turns records turns. It returns once the event that the result rests on is durable. Errors are those of
// events/conversation and events/jetlog.
type Turns interface {
	StartTurn(ctx context.Context, c conversation.Start) (services.Turn, error)
	FinalizeTurn(ctx context.Context, c conversation.Finalize) (services.Turn, error)
	ForkSession(ctx context.Context, c conversation.ForkSession) (services.Session, error)
}

// Sessions reads a session with all its pending turns. The session is as it is now, or, if known is above 0, as it is
// at that sequence or later; the caller then knows that it needs no later event.
type Sessions interface {
	Session(ctx context.Context, sessionID string, known uint64) (*conversation.State, error)
}

// Questions reads what was asked.
type Questions interface {
	Question(ctx context.Context, sessionID string, turn uuid.UUID) (*events.Question, error)
}

// Presence lets the processes of a deployment know which turns are being answered.
type Presence interface {
	// Announce announces that this process answers a turn, until leave is called.
	Announce(turn uuid.UUID) (leave func(), err error)
	// Present reports whether some process answers a turn.
	Present(ctx context.Context, turn uuid.UUID) (bool, error)
	// Claimed returns a number that changes with each claim of a turn.
	Claimed(ctx context.Context, turn uuid.UUID) (uint64, error)
	// Claim takes a turn over. It returns false if the turn was claimed since Claimed returned the number since.
	Claim(ctx context.Context, turn uuid.UUID, since uint64) (bool, error)
}

// Contexts builds prompts.
type Contexts interface {
	// Valid returns the error that Build would return for a bad request. It is called before a message is recorded.
	Valid(r services.ContextRequest) error
	services.ContextBuilder
}

// The nouns of models and of their work, which other services use, too.
type (
	// Prompt is what is sent to a model.
	Prompt = services.Prompt
	// Model answers prompts.
	Model = services.Model
	// Work is a step that a model has to answer.
	Work = services.Work
	// Task is a Work with its place.
	Task = services.Task
)
