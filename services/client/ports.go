package client

import "context"

// SessionStore keeps the turns of sessions. The same session and request start the
// same turn, for ever; the first question and the first answer stand.
type SessionStore interface {
	StartTurn(ctx context.Context, s Start) (Turn, error)
	FinalizeTurn(ctx context.Context, f Finalize) (Turn, error)
	// ListRecentFinalizedTurns returns the newest turns that have their answer, newest
	// last.
	ListRecentFinalizedTurns(ctx context.Context, sessionID string, limit int) ([]Turn, error)
}

// UserStore keeps what belongs to an identity.
type UserStore interface {
	// LinkSession links a session to an identity; linking it to another one is an
	// *Error with the code session_linked_elsewhere.
	LinkSession(ctx context.Context, identityID, sessionID string) (Session, error)
	IdentityTurns(ctx context.Context, identityID string, q IdentityQuery) (TurnPage, error)
}

// HistoryService is what a pipeline calls, once when a request begins and once when
// it has its answer.
type HistoryService interface {
	OnRequestStarted(ctx context.Context, s Start) (turnID string, err error)
	OnRequestFinalized(ctx context.Context, f Finalize) error
}

var (
	_ SessionStore   = (*Client)(nil)
	_ UserStore      = (*Client)(nil)
	_ HistoryService = (*Client)(nil)
)
