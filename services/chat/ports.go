package chat

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// Turns records turns; an answer means that the event it rests on is durable. Errors
// are those of events/conversation and events/jetlog.
type Turns interface {
	StartTurn(ctx context.Context, c conversation.Start) (services.Turn, error)
	FinalizeTurn(ctx context.Context, c conversation.Finalize) (services.Turn, error)
}

// Sessions reads a session with all its pending turns as it is now, or, with known above 0, as it is at that sequence
// or later. The caller saw that sequence durable, after everything that it must know of.
type Sessions interface {
	Session(ctx context.Context, sessionID string, known uint64) (*conversation.State, error)
}

// Presence lets the processes of a deployment know which turns are being answered.
type Presence interface {
	// Announce says that this process answers a turn, until leave is called.
	Announce(turn uuid.UUID) (leave func(), err error)
	// Present reports whether some process answers a turn.
	Present(ctx context.Context, turn uuid.UUID) (bool, error)
	// Claimed returns a number that changes with each claim of a turn.
	Claimed(ctx context.Context, turn uuid.UUID) (uint64, error)
	// Claim takes a turn over, and returns false if there was a claim since Claimed returned that number.
	Claim(ctx context.Context, turn uuid.UUID, since uint64) (bool, error)
}

// Contexts builds prompts.
type Contexts interface {
	// Valid refuses what Build would: before a message is recorded.
	Valid(r services.ContextRequest) error
	services.ContextBuilder
}

// Prompt is what the model is sent: messages in the OpenAI form, or in the Anthropic
// form with the system text apart.
type Prompt struct {
	System   string
	Messages []json.RawMessage
}

// Model answers prompts.
type Model interface {
	// Name is shown to clients.
	Name() string
	// Format of the prompts that it takes.
	Format() services.Format
	// Answer calls emit with each piece of the answer's text as it comes, and returns
	// the whole and why it ended. An error after some pieces says that the answer is not whole. Its text may
	// be logged: it holds nothing of the prompt and of the answer.
	Answer(ctx context.Context, p Prompt, emit func(piece string)) (text string, why services.Finish, err error)
}
