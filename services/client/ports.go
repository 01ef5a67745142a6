package client

import "context"

// SessionStore keeps the turns of sessions. The same session and request always start the same turn; its first question
// and first answer stay.
type SessionStore interface {
	StartTurn(ctx context.Context, s Start) (Turn, error)
	FinalizeTurn(ctx context.Context, f Finalize) (Turn, error)
	// ListRecentFinalizedTurns returns the newest turns with an answer, newest last.
	ListRecentFinalizedTurns(ctx context.Context, sessionID string, limit int) ([]Turn, error)
}

// TurnRecorder records turns whose answer is known, one or many in a call.
type TurnRecorder interface {
	RecordTurn(ctx context.Context, t WholeTurn) (Turn, error)
	RecordTurns(ctx context.Context, turns []WholeTurn) ([]Recorded, error)
	RecordNewTurns(ctx context.Context, turns []WholeTurn) ([]Recorded, error)
}

// UserStore keeps what belongs to an identity.
type UserStore interface {
	// LinkSession links a session to an identity. If the session belongs to another identity, it fails with an *Error
	// with the code session_linked_elsewhere.
	LinkSession(ctx context.Context, identityID, sessionID string) (Session, error)
	IdentityTurns(ctx context.Context, identityID string, q IdentityQuery) (TurnPage, error)
}

// HistoryService is what a pipeline calls: once when a request begins, and once when it has its answer.
type HistoryService interface {
	OnRequestStarted(ctx context.Context, s Start) (turnID string, err error)
	OnRequestFinalized(ctx context.Context, f Finalize) error
}

var (
	_ SessionStore   = (*Client)(nil)
	_ TurnRecorder   = (*Client)(nil)
	_ UserStore      = (*Client)(nil)
	_ HistoryService = (*Client)(nil)
)
