package services

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// OnPending decides what happens to a message that arrives while another message is being answered.
type OnPending string

// Reject refuses the message (decide.ErrTurnPending). Enqueue lets it wait until it is next. Interrupt ends the
// earlier answers, and keeps their text so far.
const (
	Reject    OnPending = "reject"
	Enqueue   OnPending = "enqueue"
	Interrupt OnPending = "interrupt"
)

// OnDisconnect decides what happens to an answer that is being made once nobody is connected any more who asked for it
// or watches it: it is stopped, or goes on.
type OnDisconnect string

// The answers of a surface that says nothing of it go on, but for chat completions.
const (
	StopOnDisconnect     OnDisconnect = "stop"
	ContinueOnDisconnect OnDisconnect = "continue"
)

// Valid reports whether it is one of these.
func (d OnDisconnect) Valid() bool { return d == StopOnDisconnect || d == ContinueOnDisconnect }

// ChatMessage is what a user says in a thread, with the options of a context. With an empty ThreadID or "new" a new
// thread is made; an empty RequestID is replaced by a new one.
type ChatMessage struct {
	ThreadID, UserID, RequestID, Content string
	// Edits is a turn whose question the message takes the place of, Regenerates one whose question is asked again,
	// without Content. The answer is given in a branch that begins right before that turn.
	Edits, Regenerates     uuid.UUID
	OnPending              OnPending
	OnDisconnect           OnDisconnect
	SystemPrompt           string
	Language               Language
	MaxMessages, MaxTokens int
	IdleTimeout            *time.Duration
	Memory, Rewrite        bool
	// Streams: the caller gets the answer piece by piece.
	Streams bool
}

// Finish says why an answer ended.
type Finish string

// An answer is whole, or was cut by the model's limit of tokens, by its filter, by a later message, or by somebody who
// stopped it.
const (
	FinishStop        Finish = "stop"
	FinishLength      Finish = "length"
	FinishFiltered    Finish = "content_filter"
	FinishInterrupted Finish = "interrupted"
	FinishStopped     Finish = "stopped"
)

// Filtered reports whether a model's filter left nothing of a turn's answer. Prompts leave such a turn out, since an
// endpoint that refused its question refuses every prompt with it.
func Filtered(t *session.Turn) bool {
	if t.Status != session.Finalized || t.Answer == nil {
		return false
	}
	says := func(metadata []byte) bool { return bytes.Contains(metadata, []byte(FinishFiltered)) }
	if !says(t.AnswerMetadata) && (t.Question == nil || !says(t.Question.Metadata)) { // a whole turn has but one
		return false // most turns, which need no joined metadata
	}
	var metadata struct {
		Finish string `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.Metadata(), &metadata) // another pipeline's metadata may have any form
	if metadata.Finish != string(FinishFiltered) {
		return false
	}
	list := message.ParseList(t.Answer.AnswerMessages)
	for _, m := range list {
		switch {
		case m.Words() != "" || len(m.Calls()) > 0:
			return false
		case m.Role() == message.Assistant && m.Empty():
			return true // whatever extends the turn
		}
	}
	return len(list) > 0 || t.Answer.AnswerNeutral == ""
}

// ChatReply is the model's answer. Turn is empty for a message of the system user.
type ChatReply struct {
	ThreadID       string
	Turn           Turn
	Content, Model string
	// HistoryTurns, HistoryMessages, DroppedTurns and Source describe the prompt.
	HistoryTurns, HistoryMessages, DroppedTurns int
	Source                                      Source
	RewrittenQuery                              string
	// Repeated: the same request was answered before.
	Repeated bool
	// Finish says why the answer ended; "" if there is no answer.
	Finish Finish
}

// Chat answers messages with a model. Its errors are those of TurnWriter and ContextBuilder,
// decide.ErrTurnPending under Reject, and ErrModelFailed.
type Chat interface {
	Send(ctx context.Context, m ChatMessage, to Listener) (ChatReply, error)
}
