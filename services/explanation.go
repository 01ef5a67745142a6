package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
)

// ExplainAsk asks why a turn got its answer. The options are those of the prompt that the turn was asked with.
type ExplainAsk struct {
	SessionID      string
	TurnID         uuid.UUID
	MaxMessages    int // 0: 20
	IncludePending bool
	Language       Language
}

// Explanation says why a turn got its answer: what the log holds of the turn, the prompt as of its question with the
// redactions of today, and for each turn before it whether the prompt showed it. If the session that was asked for is a
// branch that shares the turn, the turn is Inherited, and stands in SessionID.
type Explanation struct {
	SessionID string
	TurnID    uuid.UUID
	Inherited bool
	AsOf      string
	Events    []ExplainedEvent
	Prompt    Context
	Turns     []ExplainedTurn
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
	Usage *conversation.Usage `json:"usage,omitempty"`
	Data  json.RawMessage     `json:"data,omitempty"`
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

// Explainer explains turns. It fails with ErrNotExplained if the session has no such turn; its other errors are those
// of an EventReader and a ContextBuilder.
type Explainer interface {
	Explain(ctx context.Context, ask ExplainAsk) (Explanation, error)
}
