package services

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// Call lets a repeated call be known. Its digests are keyed, so that the log tells nobody what was sent. The zero value
// is a call that is never repeated.
type Call struct {
	// Key is the digest of a key by which the client names the call: the call counts once, for ever.
	Key string
	// Body is the digest of all that the call sends. With Repeats, the client says that it may have sent the same call
	// before: if that is the newest append to the session, and not old, it is the answer.
	Body    string
	Repeats bool
	// Unanswered: it is so without that word, too, while what it appended is the newest and has no answer.
	Unanswered bool
	// Only: nothing is to be appended. If the call repeats none, it fails with ErrNotRepeated.
	Only bool
}

// Name names the call in the log: by its key, or else by its body. It is "" for a call that has neither.
func (c Call) Name() string {
	switch {
	case c.Key != "":
		return CallByKey + c.Key
	case c.Body != "":
		return CallByBody + c.Body
	}
	return ""
}

// The names of calls begin with one of these, by how their digests are made.
const (
	CallByKey  = "k"
	CallByBody = "b"
)

// AddedMessages is the answer to an append of messages. Duplicate: an earlier call has appended them. Then Messages are
// those that still stand, and TurnID is the turn of the last one that was appended, if the log knows it. Otherwise
// Place is that of the turn of the append's last event.
type AddedMessages struct {
	SessionID string
	session.Head
	Position  events.Position
	Duplicate bool
	TurnID    uuid.UUID
	Messages  []AddedMessage
	Place     uint64
	// Event is the last event of the append, which stands at Position; nil if an earlier call has appended it, or if it
	// has to be read.
	Event *events.Recorded
}

// AddedMessage is a message where it stands: as the message Message, counted from 0, of a half of a turn whose first
// event is at First.
type AddedMessage struct {
	JSON    json.RawMessage
	First   events.Position
	Answer  bool
	Message int
}

// NewSession asks for a session with a description, and with its first messages. Its id must be new. With an identity
// it is linked.
type NewSession struct {
	decide.AddMessages

	IdentityID, SourceHash string
	Metadata               map[string]*string
	Kind                   events.SessionKind
	// Drawn: the id was drawn for this session, so the log is not asked whether it knows it.
	Drawn bool
}

// MessageWriter records messages, and finds the turns that they belong to. All messages of a call are appended, or
// none. Its errors are those of a TurnWriter.
type MessageWriter interface {
	AddMessages(ctx context.Context, c decide.AddMessages, call Call) (AddedMessages, error)
	// BeginSession returns the session that an earlier call has begun if the call says that it repeats that call.
	BeginSession(ctx context.Context, c NewSession, call Call) (AddedMessages, error)
}
