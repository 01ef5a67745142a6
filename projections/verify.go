package projections

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Reference is a second fold of the log, by the rules of one view. It is filled like a projection, up to the position
// that Compare asks for. It serves no reads.
type Reference interface {
	Sink
	// Compare compares each session of the view with the reference, at a position at which both have applied the same
	// events; it calls fold to reach that position. The view continues meanwhile. With sample above 0 it compares only
	// sample sessions, picked at random from the view. It passes each difference to report, and returns how many
	// sessions it compared.
	Compare(ctx context.Context, sample int, fold Fold, report func(Difference) error) (sessions int, err error)
	Drop(ctx context.Context) error
}

// Fold fills a reference.
type Fold interface {
	// Reach applies the log up to a position, and nothing after it.
	Reach(ctx context.Context, at events.Position) error
	// Session applies the events of one session up to a position.
	Session(ctx context.Context, sessionID string, at events.Position) error
	// State returns a session with its texts, as the log has it now up to a position.
	State(ctx context.Context, sessionID string, at events.Position) (*session.State, error)
}

// Difference between a view and the log: the session, what differs, and the digests of both sides, empty if a side has
// none. It holds no texts.
type Difference struct {
	SessionID string `json:"session_id"`
	What      string `json:"what"`
	View      string `json:"view_digest"`
	Log       string `json:"log_digest"`
}
