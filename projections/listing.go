package projections

import (
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// SessionFilter says which sessions a list shows. Zero values are no bounds.
type SessionFilter struct {
	IdentityID string
	// Since and Until bound a session's last activity, or its beginning if it had none: from Since on, before Until.
	Since, Until time.Time
	// Title is a part of the title, in any case. Metadata are members that the session's metadata has.
	Title    string
	Metadata map[string]string
	Kind     events.SessionKind
}

// ListedSession is a session of a list, as it is at Position. LastTurn is its newest turn that was not redacted; nil if
// there is none, or if the view does not hold it.
type ListedSession struct {
	SessionID string
	session.Head
	Position events.Position
	LastTurn *LastTurn
}

// LastTurn is the newest turn of a session, with the first 200 characters (LastTurnText) of each text.
type LastTurn struct {
	TurnID           uuid.UUID
	Status           session.Status
	Question, Answer string
}

// LastTurnText is how many characters of a text a list shows.
const LastTurnText = 200

// Half is a half of a turn.
type Half string

// The halves of a turn.
const (
	QuestionHalf Half = "question"
	AnswerHalf   Half = "answer"
)

// Period is the time from Since on, and before Until. Zero values are no bounds.
type Period struct{ Since, Until time.Time }

// SearchFilter says what a search by words looks for. Zero values are no bounds.
type SearchFilter struct {
	Query string
	// In is the half that is searched, both if it is empty; Language is neutral or translated, both if it is empty.
	In                    Half
	Language              string
	IdentityID, SessionID string
	// Period bounds the start of turns.
	Period
	MinScore float64
}

// Hit is a turn that a search has found, with the half that matches better.
type Hit struct {
	SessionID, IdentityID string
	TurnID                uuid.UUID
	Half                  Half
	CreatedAt             time.Time
	Position              events.Position
	Score                 float64
	Snippet               string
}
