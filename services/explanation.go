package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// ExplainAsk asks why a turn got its answer, or without a TurnID, what a prompt could see at an event of the session:
// the one at the position At, or if that is zero, the Nth from 1 on, or else the newest. The options are those of the
// prompt that the turn was asked with.
type ExplainAsk struct {
	SessionID      string
	TurnID         uuid.UUID
	At             events.Position
	Nth            int
	MaxMessages    int // 0: 20
	MaxTokens      int // 0: no bound
	IncludePending bool
	Summary        bool
	Language       Language
}

// Explanation says why a turn got its answer: what the log holds of the turn, the prompt as of its question with the
// redactions of today, and for each turn before it whether the prompt showed it. If the session that was asked for is a
// branch that shares the turn, the turn is Inherited, and stands in SessionID. TurnID is uuid.Nil at an event that asks
// no question: then the prompt is that of a question right after the event, and Events is the event alone.
type Explanation struct {
	SessionID string           `json:"session_id"`
	TurnID    uuid.UUID        `json:"turn_id"`
	Inherited bool             `json:"inherited"`
	AsOf      string           `json:"as_of"`
	Events    []ExplainedEvent `json:"events"`
	Turns     []ExplainedTurn  `json:"turns"`
	Prompt    Context          `json:"-"`
	// Nth is the number of the session's events up to AsOf, Of that of all. Earlier and Later are the positions of the
	// events right before and right after; empty if there is none.
	Nth, Of        int    `json:"-"`
	Earlier, Later string `json:"-"`
}

// ExplainedEvent is an event of an explained turn. Problem says why the event has no effect, if it has none. Data is
// set only if texts were asked for.
type ExplainedEvent struct {
	Position   string    `json:"position"`
	RecordedAt time.Time `json:"recordedat"`
	Type       string    `json:"type"`
	ID         string    `json:"id"`
	Redacted   bool      `json:"redacted,omitempty"`
	Problem    string    `json:"problem,omitempty"`
	// Usage is what the model used for the answer that the event brings; nil if the event tells none.
	Usage *session.Usage  `json:"usage,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// ExplainedTurn is a turn before the explained one. Seen says whether the prompt showed it, and if not, why.
// SessionID is the session that the turn stands in, which is another one if a branch has Inherited the turn.
type ExplainedTurn struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
	Position  string `json:"position"`
	Seen      string `json:"seen"`
	Inherited bool   `json:"inherited"`
}

// SeenShown is the Seen of a turn that the prompt showed.
const SeenShown = "shown"

// Explainer explains turns and events. It fails with ErrNotExplained if the session has no such turn or event. Its
// other errors are those of an EventReader and a ContextBuilder.
type Explainer interface {
	Explain(ctx context.Context, ask ExplainAsk) (Explanation, error)
}
