package projections

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

// Reference is a second fold of the log, by the rules of one view. It is filled as a
// projection is; Compare says up to where. Nobody is served from it.
type Reference interface {
	Sink
	// Compare compares each session of the view with the reference, at a position where both have applied the same
	// events; it asks fold for that position. The view goes on meanwhile. With sample above 0 it compares only so many
	// sessions, at random among those that the view holds. It passes each difference to report, and returns how many
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
}

// Difference between a view and the log: a session, what of it, and the digests of
// both sides, empty where a side has none. No texts.
type Difference struct {
	SessionID string
	What      string
	View, Log string
}
