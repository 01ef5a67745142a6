package services

import (
	"context"
	"time"

	"github.com/google/uuid"
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

// ExplainedEvent is an event of an explained turn. Problem says why the event has no effect, if it has none.
type ExplainedEvent struct {
	Position, Type, ID, Problem string
	RecordedAt                  time.Time
	Redacted                    bool
}

// ExplainedTurn is a turn before an explained one. Shown reports whether the prompt showed it; Seen says that in words,
// with the reason where it did not.
type ExplainedTurn struct {
	SessionID, TurnID, Position, Seen string
	Shown, Inherited                  bool
}

// Explainer explains turns. It fails with ErrNotExplained if the session has no such turn; its other errors are those
// of an EventReader and a ContextBuilder.
type Explainer interface {
	Explain(ctx context.Context, ask ExplainAsk) (Explanation, error)
}
