package chat

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Turns records turns; an answer means that the event it rests on is durable. Errors
// are those of events/conversation and events/jetlog.
type Turns interface {
	StartTurn(ctx context.Context, c conversation.Start) (Turn, error)
	FinalizeTurn(ctx context.Context, c conversation.Finalize) (Turn, error)
}

// Turn is a turn with the position of the event that the answer rests on.
type Turn struct {
	conversation.Turn
	SessionID, IdentityID string
	Position              events.Position
	Duplicate             bool
}

// Sessions reads a session with all its pending turns as it is now, or, with known above 0, as it is at that
// sequence or later: one that the caller saw durable, after all that it must know of.
type Sessions interface {
	Session(ctx context.Context, sessionID string, known uint64) (*conversation.State, error)
}

// Presence tells the processes of a deployment which turns are being answered.
type Presence interface {
	// Announce says that this process answers a turn, until leave is called.
	Announce(turn uuid.UUID) (leave func(), err error)
	// Present tells whether some process answers a turn.
	Present(ctx context.Context, turn uuid.UUID) (bool, error)
	// Claimed gives a number that is another after each claim of a turn.
	Claimed(ctx context.Context, turn uuid.UUID) (uint64, error)
	// Claim takes a turn over, and tells false where there was a claim since that number.
	Claim(ctx context.Context, turn uuid.UUID, since uint64) (bool, error)
}

// Contexts builds prompts.
type Contexts interface {
	// Valid refuses what Build would: before a message is recorded.
	Valid(r PromptRequest) error
	Build(ctx context.Context, r PromptRequest) (Prompt, error)
}

// PromptRequest asks for the prompt of a turn; Fresh wants no history at all. Known is as
// of Sessions.
type PromptRequest struct {
	SessionID, Message string
	TurnID             uuid.UUID
	Known              uint64
	Fresh              bool
	Options
}

// Options of a prompt, as in a context call.
type Options struct {
	SystemPrompt           string
	MaxMessages, MaxTokens int
	IdleTimeout            *time.Duration
	Language               string
	Memory, Rewrite        bool
}

// Prompt is what the model is sent: messages in the OpenAI form, or in the Anthropic
// form with the system text apart.
type Prompt struct {
	System   string
	Messages []json.RawMessage
	// What was taken from history, and from where.
	HistoryTurns, HistoryMessages, DroppedTurns int
	Source                                      string
	RewrittenQuery                              string
}

// Model answers prompts.
type Model interface {
	// Name is shown to clients.
	Name() string
	// Format of the prompts that it takes, "openai" or "anthropic".
	Format() string
	// Answer calls emit with each piece of the answer's text as it comes, and returns
	// the whole and why it ended. An error after some pieces says that the answer is not whole. Its text may
	// be logged: it holds nothing of the prompt and of the answer.
	Answer(ctx context.Context, p Prompt, emit func(piece string)) (text string, why Finish, err error)
}

// Finish says why an answer ended.
type Finish string

// An answer is whole, or was cut by the model's limit of tokens, by its filter, or by a
// later message.
const (
	Stop        Finish = "stop"
	Length      Finish = "length"
	Filtered    Finish = "content_filter"
	Interrupted Finish = "interrupted"
)
