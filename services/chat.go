package services

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// OnPending says what happens to a message that comes while another message is being answered.
type OnPending string

// Reject refuses the message (conversation.ErrTurnPending). Enqueue lets it wait for its turn. Interrupt breaks off the
// answers before it, and keeps what they have said so far.
const (
	Reject    OnPending = "reject"
	Enqueue   OnPending = "enqueue"
	Interrupt OnPending = "interrupt"
)

// ChatMessage is what a user says in a thread, with the options of a context. An empty ThreadID,
// or "new", makes a thread; an empty RequestID is made up.
type ChatMessage struct {
	ThreadID, UserID, RequestID, Content string
	OnPending                            OnPending
	SystemPrompt                         string
	Language                             Language
	MaxMessages, MaxTokens               int
	IdleTimeout                          *time.Duration
	Memory, Rewrite                      bool
}

// Finish says why an answer ended.
type Finish string

// An answer is whole, or was cut by the model's limit of tokens, by its filter, or by a later
// message.
const (
	FinishStop        Finish = "stop"
	FinishLength      Finish = "length"
	FinishFiltered    Finish = "content_filter"
	FinishInterrupted Finish = "interrupted"
)

// ChatReply is the model's answer. Turn is empty for a message of the system.
type ChatReply struct {
	ThreadID       string
	Turn           Turn
	Content, Model string
	// HistoryTurns, HistoryMessages, DroppedTurns and Source are those of the prompt.
	HistoryTurns, HistoryMessages, DroppedTurns int
	Source                                      Source
	RewrittenQuery                              string
	// Again: the request was answered before.
	Again bool
	// Finish says why the answer ended; "" where there is none.
	Finish Finish
}

// ChatListener is told of a reply while it is made. Its methods are called by one goroutine, in
// order; they must not block for long.
type ChatListener interface {
	// Begun names the thread and the turn, before the model is called.
	Begun(threadID string, turnID uuid.UUID)
	Piece(text string)
}

// Chat answers messages with a model. Its errors are those of TurnWriter and ContextBuilder,
// conversation.ErrTurnPending under Reject, and ErrModelFailed.
type Chat interface {
	Send(ctx context.Context, m ChatMessage, to ChatListener) (ChatReply, error)
}
