package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// TurnWriter records turns. Its errors are those of events/conversation and
// events/jetlog; an answer means that the event it rests on is durable.
type TurnWriter interface {
	StartTurn(ctx context.Context, c conversation.Start) (Turn, error)
	FinalizeTurn(ctx context.Context, c conversation.Finalize) (Turn, error)
	RedactTurn(ctx context.Context, sessionID string, c conversation.Redact) (Turn, error)
	CorrectTurn(ctx context.Context, c conversation.Correct) (Turn, error)
}

// SessionWriter records what concerns a whole session.
type SessionWriter interface {
	LinkSession(ctx context.Context, sessionID, identityID, sourceHash string) (Session, error)
	ResetSession(ctx context.Context, sessionID, reason string) (Session, error)
}

// Turn is a turn with what its session adds. Position is that of the event that an
// answer rests on; in a listing, that of the turn's start.
type Turn struct {
	conversation.Turn
	SessionID, IdentityID string
	Position              events.Position
	Partition             int
	Duplicate             bool
	DroppedMetadata       []string
}

// Session is the answer to a write on a session.
type Session struct {
	SessionID string
	conversation.Head
	Position  events.Position
	Duplicate bool
}

// SessionReader reads sessions, at least as new as what was acknowledged before the
// call and as Ask.MinPosition (else ErrPositionNotReached). A failure is an error and
// never an empty session.
type SessionReader interface {
	Read(ctx context.Context, ask Ask) (Reading, error)
}

// Ask says how much of a session is needed: Shown finalized turns that prompts may
// show, or all turns with their tombstones if Shown is -1.
type Ask struct {
	SessionID   string
	Shown       int
	MinPosition []events.Position
}

// Reading is a session at a position; the state is the caller's own.
type Reading struct {
	State    *conversation.State
	Position events.Position
	Source   string
}

// ContextBuilder builds prompts. It gets only what is in bounds by itself; the same
// errors as SessionReader, and *conversation.Invalid.
type ContextBuilder interface {
	Build(ctx context.Context, req ContextRequest) (Context, error)
}

// ContextRequest asks for a context. MaxMessages and MaxTokens are 0 where they were
// not given, IdleTimeout and History nil.
type ContextRequest struct {
	SessionID, Message, SystemPrompt string
	TurnID                           uuid.UUID
	MaxMessages, MaxTokens           int
	IdleTimeout                      *time.Duration
	Language, Format                 string
	IncludePending, Memory, Rewrite  bool
	IdentityID                       string
	History                          []json.RawMessage
	AsOf                             *AsOf
	MinPosition                      []events.Position
}

// AsOf is a place in the log, inclusive, or a time.
type AsOf struct {
	Position *events.Position
	Time     time.Time
}

// Message is a chat message that writes itself as JSON.
type Message interface{ AppendJSON(to []byte) []byte }

// Context is a prompt. Messages are written to the client as they are.
type Context struct {
	Messages        []Message
	System          string
	SessionFound    bool
	HistoryMessages int
	HistoryTurns    int
	DroppedTurns    int
	MemorySnippet   string
	RewrittenQuery  string
	RewriteFallback bool
	Warnings        []string
	Position        events.Position
	Source          string
}

// IdentityReader lists the turns of an identity across its sessions. Its errors are
// ErrAuditUnavailable, ErrPositionNotReached, and *conversation.Invalid for a cursor
// that it never gave.
type IdentityReader interface {
	IdentityTurns(ctx context.Context, ask IdentityAsk) (IdentityPage, error)
}

// IdentityAsk names a page: at most Limit turns that were created at or after Since
// and before Until (zero: no bound), from where the cursor of the last page ends.
type IdentityAsk struct {
	IdentityID   string
	Since, Until time.Time
	Limit        int
	Cursor       string
	MinPosition  []events.Position
}

// IdentityPage is a page; NextCursor is empty at the end.
type IdentityPage struct {
	Turns      []Turn
	NextCursor string
}

// EventReader reads the log. An error of OpenEvents is ErrPositionNotReached,
// *conversation.Invalid, or one of events/jetlog; ctx lives as long as the reading.
type EventReader interface {
	OpenEvents(ctx context.Context, q EventQuery) (EventStream, error)
}

// EventQuery says which events are wanted; zero values are no bounds. From is where to
// go on after, To and Since are inclusive, Until is not.
type EventQuery struct {
	SessionID, IdentityID string
	Types                 []string
	From, To, Min         []events.Position
	Since, Until          time.Time
	Follow                bool
}

// EventStream is one reading, for one reader. Next gives events until io.EOF, and may
// be called again when its ctx ended; what it gives is valid until the next call.
// Position is how far the reading is, what the query leaves out included.
type EventStream interface {
	Next(ctx context.Context) ([]Event, error)
	From() events.Cursor
	End() events.Cursor
	Position() events.Cursor
	Close()
}

// Event is a CloudEvent in JSON form, on one line.
type Event struct {
	Position events.Position
	JSON     []byte
}

// ProjectionReader tells how far the views are.
type ProjectionReader interface {
	Projections(ctx context.Context) ([]Projection, error)
}

// Projection is a view in one partition, with which generation of it serves reads
// and whether it can be rebuilt.
type Projection struct {
	projections.Status
	Generation  int
	Rebuildable bool
}

// ProjectionKeeper rebuilds and verifies the views that this process feeds. Its errors
// are ErrNoProjection, ErrNotFed, ErrRebuildRunning and ErrNoRebuild, as they are or wrapped.
type ProjectionKeeper interface {
	// Rebuild begins a rebuild, which goes on after it returns, and gives the number of
	// the generation that is being filled.
	Rebuild(ctx context.Context, name string) (generation uint64, err error)
	// CancelRebuild breaks off the rebuild that runs in this process; what is served stays
	// as it was.
	CancelRebuild(ctx context.Context, name string) (generation uint64, err error)
	// Verify holds a view against the log, or sample of its sessions, and gives progress
	// now and then and each difference to its callbacks. It tells how many sessions it
	// looked at.
	Verify(ctx context.Context, name string, sample int, progress func(done, of uint64) error, found func(projections.Difference) error) (sessions int, err error)
}

// Check is something that must answer before this process may take requests, or that it
// can do without (Optional). Probe must end with its ctx.
type Check struct {
	Name     string
	Optional bool
	Probe    func(ctx context.Context) error
}

// RateLimiter holds sessions and identities to a rate. A request of a kind that may not
// go on may come again after wait.
// ByIdentity tells whether identities have a rate.
type RateLimiter interface {
	ByIdentity() bool
	Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool)
}

// Chat answers messages with a model. Its errors are those of TurnWriter and
// ContextBuilder, and ErrModelFailed: then the turn is pending.
type Chat interface {
	Send(ctx context.Context, m ChatMessage, to ChatListener) (ChatReply, error)
}

// ChatMessage is what a user says. An empty ThreadID, or "new", makes a thread; an
// empty RequestID is made up.
type ChatMessage struct {
	ThreadID, UserID, RequestID, Content string
	OnPending, SystemPrompt, Language    string
	MaxMessages, MaxTokens               int
	IdleTimeout                          *time.Duration
	Memory, Rewrite                      bool
}

// ChatListener is told of an answer while it is made, in order.
type ChatListener interface {
	Begun(threadID string, turnID uuid.UUID)
	Piece(text string)
}

// ChatReply is the answer. Turn is empty for a message of the system; Again says that
// the request was answered before.
type ChatReply struct {
	ThreadID       string
	Turn           Turn
	Content, Model string
	HistoryTurns   int
	// HistoryMessages, DroppedTurns and Source are of the prompt, for the log.
	HistoryMessages, DroppedTurns int
	Source                        string
	RewrittenQuery                string
	// FinishReason says why the answer ended.
	FinishReason string
	Again        bool
}
