package services

import (
	"context"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
)

// Erasure asks for a session or an identity to be forgotten. The log keeps Reason and By for ever.
type Erasure struct{ Reason, By string }

// ErasureWriter records that a session or an identity is to be erased, and returns the id of the receipt that shows how
// far the erasure is. If the session or identity was erased before, it returns the first receipt. Its errors are those
// of TurnWriter.
type ErasureWriter interface {
	EraseSession(ctx context.Context, sessionID string, c Erasure) (receiptID string, err error)
	EraseIdentity(ctx context.Context, identityID string, c Erasure) (receiptID string, err error)
}

// Receipt shows what an erasure has reached. It is of the session or of the identity that it
// names; with TurnID it is of a redaction.
type Receipt struct {
	ID, SessionID, IdentityID, TurnID string
	Position                          events.Position
	RequestedAt                       time.Time
	Places                            []ReceiptPlace
	// Progress of what is under way; nil where none is known.
	Progress *ErasureProgress
}

// Complete reports whether every place is done.
func (r Receipt) Complete() bool {
	return !slices.ContainsFunc(r.Places, func(p ReceiptPlace) bool { return !p.Done })
}

// ReceiptPlace is what an erasure has done in one place. At is when that was written down, and
// zero where nobody has.
type ReceiptPlace struct {
	Place  string
	Done   bool
	Erased *int
	At     time.Time
}

// ErasureProgress counts what an erasure that is under way has done. The notes of the log store
// it in this form. Counts are 0 where they are not known.
type ErasureProgress struct {
	Began        time.Time `json:"began"`
	Events       int       `json:"events"`
	Erased       int       `json:"erased"`
	Turns        int       `json:"turns,omitempty"`
	Sessions     int       `json:"sessions,omitempty"`
	SessionsDone int       `json:"sessions_done,omitempty"`
}

// ReceiptReader returns receipts; ErrNoReceipt where there is none.
type ReceiptReader interface {
	Receipt(ctx context.Context, id string) (Receipt, error)
}

// Swept counts what retention took out of the log, or would take out: Events of anonymous
// Sessions, and Turns of LinkedSessions.
type Swept struct{ Sessions, Events, LinkedSessions, Turns int }

// Retention takes out of the log what is too old, or with dry only counts it.
// projections.ErrNotYet where a view is not ready for that.
type Retention interface {
	Sweep(ctx context.Context, dry bool) (Swept, error)
}
