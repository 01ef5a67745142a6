package projections

import (
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// SessionFilter says which sessions a list shows. Zero values are no bounds.
type SessionFilter struct {
	IdentityID string
	// Since and Until bound a session's last activity, or its beginning if it had none: from Since on, before Until.
	Since, Until time.Time
	// Title is a part of the title, in any case. Metadata are members that the session's metadata has.
	Title    string
	Metadata map[string]string
}

// ListedSession is a session of a list, as it is at Position. LastTurn is its newest turn that was not redacted; nil if
// there is none, or if the view does not hold it.
type ListedSession struct {
	SessionID string
	conversation.Head
	Position events.Position
	LastTurn *LastTurn
}

// LastTurn is the newest turn of a session, with the first 200 characters (LastTurnText) of each text.
type LastTurn struct {
	TurnID           uuid.UUID
	Status           conversation.Status
	Question, Answer string
}

// LastTurnText is how many characters of a text a list shows.
const LastTurnText = 200
