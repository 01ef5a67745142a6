package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// Listener hears an answer while it is made, whoever asked. One goroutine calls its methods, in order; they must not
// block for long.
type Listener interface {
	// Begun says what is answered, before the model is called.
	Begun(s Step)
	// Piece is what is new of the answer.
	Piece(p AnswerPiece)
	// Ended says what the answer is, as it was recorded, or why there is none.
	Ended(a Answered)
}

// Quiet hears nothing.
type Quiet struct{}

var _ Listener = Quiet{}

// Begun implements Listener.
func (Quiet) Begun(Step) {}

// Piece implements Listener.
func (Quiet) Piece(AnswerPiece) {}

// Ended implements Listener.
func (Quiet) Ended(Answered) {}

// Step is what a model is asked to answer: the messages of one call, where they stand in the log. Of a message that is
// not recorded TurnID is empty.
type Step struct {
	SessionID string
	TurnID    uuid.UUID
	// ResponseID is the id of the response that the step is, Previous that of the one that it goes on with, and
	// Conversation is set where the call named that.
	ResponseID, Conversation, Previous string
	CreatedAt                          time.Time
	Model                              string
	// Stored: the step is in the log.
	Stored   bool
	Settings Settings
	// Mint makes the ids of the items of the answer.
	Mint Mint `json:"-"`
	// Asked is the position of the event that brought the messages, and Recorded says what became of them.
	Asked    events.Position
	Recorded Recorded
}

// Recorded says what a call has recorded before its answer.
type Recorded string

// A call opens a turn, extends one, or does so in a branch that it makes; or it repeats an earlier one, or leaves
// nothing.
const (
	RecordedTurn      Recorded = "turn"
	RecordedExtension Recorded = "extension"
	RecordedFork      Recorded = "fork"
	RecordedAgain     Recorded = "again"
	RecordedNone      Recorded = "none"
)

// Mint returns the id of the item with a type and an index among the items of an answer. own is the id that the model
// gave an item which it gets back as it came, or "".
type Mint func(kind, own string, index int) string

// Settings are what a call said beside its messages, by the names of the surface that it came to. The log keeps them.
type Settings map[string]json.RawMessage

// Answered is a step with its answer, as it stands in the log. Without an answer, Err says why, unless somebody still
// works on it: Running, and Queued while it waits for others.
type Answered struct {
	Step

	At      time.Time
	Output  []message.Item
	Finish  Finish
	Usage   session.Usage
	Running bool
	Queued  bool
	Err     error
	// Pieces are the lengths of the pieces in which the answer was told, as it is recorded; "" if that is not known.
	Pieces string
	// Reply is what a call of the chat is told of the answer; nil where there is none.
	Reply *ChatReply
}

// Caller is who makes a call.
type Caller struct {
	// Identity that the caller is bound to, or "".
	Identity, SourceHash string
	// May returns ErrNoSession if the caller may not know of a session, and another error if that can't be told.
	May func(ctx context.Context, sessionID string) error
}

// StepAsk asks for a response: items that go on with a conversation, with a response, or with what they begin with.
type StepAsk struct {
	Caller

	// Input are the items in the order in which they came. IDs holds for each item the id that it came with, or "".
	// Only what an endpoint gets as it came keeps an id of its own.
	Input []message.Item
	IDs   []string
	// Missing refuses the call: it names what is not there (any more). It may repeat an earlier one all the same.
	Missing error
	// Sent are the messages that the model gets in the place of others, by these: with images that the log does not
	// keep.
	Sent map[string]json.RawMessage
	// Conversation and Previous are ids; at most one of them is set.
	Conversation, Previous string
	// Completion is set for a chat completion, which names its session there.
	Completion *Completion
	// Store: the step and its answer are recorded.
	Store bool
	// Instructions stand before the history, for this step only.
	Instructions string
	// Truncate drops the oldest turns of a history that is too long for the model.
	Truncate bool
	Options  ModelOptions
	Settings Settings
	// Background: the answer is made without its caller, and counts among those that may be.
	Background bool

	Call Call
	// RequestID names the request; the same one is never recorded twice.
	RequestID    string
	OnPending    OnPending
	OnDisconnect OnDisconnect
	// Streams: the caller gets the answer piece by piece.
	Streams bool
}

// History says what a model is shown of a session.
type History string

// HistoryServer is what was recorded, HistoryClient what the client sent, and HistoryAuto the latter once a client of
// the session has sent an assistant's words.
const (
	HistoryAuto   History = "auto"
	HistoryServer History = "server"
	HistoryClient History = "client"
)

// Completion is a chat completion: its messages may be a whole history. Input has no system messages.
type Completion struct {
	// Session need not be there yet; it is "" where nothing is stored.
	Session string
	History History
	// Sent are all messages as they came, and System those of the system and the developer.
	Sent, System []json.RawMessage
}

// Paging asks for a page of items: at most Limit, in their order or else the other way round, behind the one of the id
// After.
type Paging struct {
	Limit int
	Asc   bool
	After string
}

// ItemPage is a page of items, as of Position. More follow it, or do not. Found: there is the item that it was to
// follow.
type ItemPage struct {
	Items       []message.Item
	More, Found bool
	Position    events.Position
}

// Responder answers steps with a model. Its errors are those of TurnWriter and ContextBuilder, ErrModelFailed, after
// which the input stands in the log, and the ones that are named here.
type Responder interface {
	// Respond answers a step. Once the step is recorded, the answer is, too, even if ctx ends. Errors: ErrNoPrevious,
	// ErrUnanswered, ErrNoConversation, ErrNoInput, ErrNoResponse if it was deleted meanwhile, and
	// decide.ErrTurnPending under Reject.
	Respond(ctx context.Context, a StepAsk, to Listener) (Answered, error)
	// Begin is Respond, but returns once the step is recorded. The answer is made without its caller. Of a step that is
	// being answered already it says so. Errors: ErrTooManyAnswers.
	Begin(ctx context.Context, a StepAsk) (Answered, error)
	// WatchResponse tells a listener of a response, from its beginning, as its caller was told. CancelResponse ends the
	// answer of one that runs with what is there; one that is over stays as it is.
	WatchResponse(ctx context.Context, id string, who Caller, to Listener) error
	CancelResponse(ctx context.Context, id string, who Caller) (Answered, error)
	// Compact returns a compaction of the history that a request would go on with, and of its input. Errors:
	// ErrNoSummaries.
	Compact(ctx context.Context, a StepAsk) (Compaction, error)
	// CountTokens counts the tokens of a step's prompt.
	CountTokens(ctx context.Context, a StepAsk) (int64, error)
	// The others fail with ErrNoResponse. Response returns one, InputItems a page of what it was asked with, and
	// SessionOf the session that it stands in. DeleteResponse takes what it brought out of its turns, and returns the
	// position of the receipt.
	Response(ctx context.Context, id string, who Caller) (Answered, error)
	InputItems(ctx context.Context, id string, who Caller, p Paging) (ItemPage, error)
	SessionOf(ctx context.Context, id string, who Caller) (string, error)
	DeleteResponse(ctx context.Context, id string, who Caller, call Call) (events.Position, error)
	// SessionOfItems returns the session of the last of some ids that is that of an item which the caller may reach;
	// "" if there is none among the last that look so.
	SessionOfItems(ctx context.Context, ids []string, who Caller) (string, error)
}

// ItemAdder adds items to a conversation. An output goes to the turn that makes its call. Its errors are those of a
// MessageWriter.
type ItemAdder interface {
	AddItems(ctx context.Context, sessionID, requestID string, given []message.Item, call Call) (AddedMessages, error)
}
