package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
)

// Language of the texts of a context.
type Language string

// The neutral text, or its translation if there is one.
const (
	Neutral    Language = "neutral"
	Translated Language = "translated"
)

// Limits of a window of messages (docs/contract.md#context).
const (
	DefaultMessages = 20
	LeastMessages   = 2
	MostMessages    = 100_000
)

// Format of the messages of a context.
type Format string

// The formats of a context.
const (
	OpenAI    Format = "openai"
	Anthropic Format = "anthropic"
)

// ContextRequest asks for a context (docs/contract.md#context).
type ContextRequest struct {
	SessionID string
	Message   string
	TurnID    uuid.UUID
	// Through: the prompt ends with TurnID, its question and what it has of an answer, or without TurnID with the last
	// turn, and Message is empty.
	Through bool
	// Append are chat messages that stand behind the history; only with Through.
	Append []json.RawMessage
	// Sent are messages that the model gets in the place of the turn's own, by these as the log keeps them: with the
	// images that the log does not keep. Only with Through.
	Sent map[string]json.RawMessage
	// Compacted returns the text that a compaction stands for, or "" where it stands for none (any more). Without it, no
	// compaction stands for any.
	Compacted func(ctx context.Context, compaction message.Item) (string, error)
	// MaxPrompt bounds the tokens of the whole prompt; 0: no bound. With Truncate, a longer prompt loses its oldest
	// turns, and what tools answered is shortened. What is too long even so is refused with ErrPromptTooLong, but only
	// with Through.
	MaxPrompt    int
	Truncate     bool
	SystemPrompt string
	MaxMessages  int // 0: DefaultMessages
	MaxTokens    int // 0: no bound
	// IdleTimeout: nil means the deployment's setting, 0 means off.
	IdleTimeout *time.Duration
	// Blocks: nil means the deployment's setting.
	Blocks         *bool
	Language       Language
	IncludePending bool
	Memory         bool
	Rewrite        bool
	// Summary asks for a summary of the turns that the window leaves out.
	Summary    bool
	IdentityID string
	// History, if set, is the client's own history and replaces the stored one.
	History     []json.RawMessage
	Format      Format
	AsOf        *AsOf
	MinPosition []events.Position
	KnownSeq    uint64 // as in an Ask; not with AsOf
}

// AsOf is a place in the log, inclusive, or a time.
type AsOf struct {
	Position *events.Position
	Time     time.Time
}

// Message is a chat message that encodes itself as JSON. The caller must not change what JSON returns. Text returns the
// content if it is a string, else "".
type Message interface {
	Role() string
	Text() string
	JSON() json.RawMessage
	AppendJSON(to []byte) []byte
}

// Context is the prompt for a model. Messages are in the requested format; in the Anthropic format System is apart from
// them.
type Context struct {
	Messages        []Message
	System          string
	SessionFound    bool
	HistoryMessages int
	HistoryTurns    int
	// TurnIDs are the turns of the history, oldest first.
	TurnIDs []uuid.UUID
	// DroppedTurns is how many turns the window left out.
	DroppedTurns int
	// Tokens of the prompt's texts and calls, as the model counts them; only with Through.
	Tokens int
	// Summary stands for turns that the window left out; nil if none does.
	Summary         *ShownSummary
	MemorySnippet   string
	RewrittenQuery  string
	RewriteFallback bool
	Warnings        []string
	Position        events.Position
	// Others are positions of the other partitions that were read.
	Others []events.Position
	Source Source
}

// ShownSummary names the summary in a context, which stands for so many turns.
type ShownSummary struct {
	SummaryID, ThroughTurnID uuid.UUID
	Turns                    int
}

// ContextBuilder builds contexts. Its errors are those of SessionReader,
// *decide.Invalid and ErrPromptTooLong.
type ContextBuilder interface {
	Build(ctx context.Context, req ContextRequest) (Context, error)
}

// MemoryQuery asks what is known about a message. IdentityID is empty for an anonymous session. Shown are the turns
// that the prompt shows anyway. After is the boundary of an anonymous session, set by a silence or a reset: turns at
// that place or before it may not be shown.
type MemoryQuery struct {
	SessionID, IdentityID, Message string
	Shown                          []uuid.UUID
	After                          uint64
}

// MemorySnippet is what a memory knows about a message: whole sentences, at most 2,000 characters; empty if it knows
// nothing. ByWords: the index of meanings gave nothing, so that the memory was searched by words alone. OtherModel:
// that was so since another model has filled it.
type MemorySnippet struct {
	Text                string
	ByWords, OtherModel bool
}

// Memory returns what is known of an identity, or of an anonymous session, beyond the history. It answers within its
// own time budget. It fails with ErrWithheld while a deletion is not confirmed.
type Memory interface {
	Snippet(ctx context.Context, q MemoryQuery) (MemorySnippet, error)
}
