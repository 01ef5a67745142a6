package services

import (
	"context"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
)

// Erasure asks for a session or an identity to be forgotten. The log keeps Reason and By for ever. An erasure of a
// session is known by its Call: with Call.Only, a session that another call has erased, or none, is ErrNotRepeated.
type Erasure struct {
	Reason, By string
	Call       Call
}

// ErasureWriter records that a session or an identity is to be erased, and returns the id of the receipt that shows how
// far the erasure is. For a session or identity that was erased before, it returns the first receipt. Its errors are
// those of TurnWriter.
type ErasureWriter interface {
	EraseSession(ctx context.Context, sessionID string, c Erasure) (receiptID string, err error)
	EraseIdentity(ctx context.Context, identityID string, c Erasure) (receiptID string, err error)
}

// Receipt shows how far an erasure is. It belongs to the session or the identity that it names, or with TurnID to a
// redaction. It is no event, though four fields are named as in events.Recorded: ID is the receipt's, and the others
// name what is erased.
type Receipt struct {
	ID, SessionID, IdentityID, TurnID string
	Position                          events.Position
	RequestedAt                       time.Time
	// Reason and By are what the log keeps of why it was asked for, and by whom.
	Reason, By string
	// Owner is the identity of a redacted turn's session, if the redaction names it.
	Owner  string
	Places []ReceiptPlace
	// Shared is nil for a redaction, and while it is not known.
	Shared *SharedTurns
	// Progress of an unfinished erasure; nil if it is not known.
	Progress *ErasureProgress
}

// Complete reports whether every place is done.
func (r Receipt) Complete() bool {
	return !slices.ContainsFunc(r.Places, func(p ReceiptPlace) bool { return !p.Done })
}

// ReceiptPlace is what an erasure has done in one place. At is when that was recorded, zero if it was not recorded. Why
// says why a place is not done although nothing is left to do, and what an operator must do.
type ReceiptPlace struct {
	Place  string
	Done   bool
	Erased *int
	At     time.Time
	Why    string
}

// SharedTurns counts what an erasure took out of branches: the Branches that lost turns, and these Turns, each once.
type SharedTurns struct {
	Branches int `json:"branches"`
	Turns    int `json:"turns"`
}

// ErasureProgress counts what an unfinished erasure has done. The notes of the log store it in this form. A count is 0
// if it is not known.
type ErasureProgress struct {
	Began        time.Time `json:"began"`
	Events       int       `json:"events"`
	Erased       int       `json:"erased"`
	Turns        int       `json:"turns,omitempty"`
	Sessions     int       `json:"sessions,omitempty"`
	SessionsDone int       `json:"sessions_done,omitempty"`
	// Shared is counted before anything is erased.
	Shared *SharedTurns `json:"shared,omitempty"`
}

// ReceiptReader returns receipts: Receipt one, or ErrNoReceipt, and Receipts a page of all, the newest first.
type ReceiptReader interface {
	Receipt(ctx context.Context, id string) (Receipt, error)
	Receipts(ctx context.Context, ask ReceiptsAsk) (ReceiptPage, error)
}

// ReceiptsAsk asks for at most Limit receipts. Cursor is the NextCursor of the page before, or empty.
type ReceiptsAsk struct {
	Limit  int
	Cursor string
}

// ReceiptPage is a page of receipts. It may be short, even empty, where the log has few erasures; NextCursor is empty
// only at the end.
type ReceiptPage struct {
	Receipts   []Receipt
	NextCursor string
}

// Swept counts what retention removed from the log, or would remove: Events of anonymous Sessions, and Turns of
// LinkedSessions.
type Swept struct{ Sessions, Events, LinkedSessions, Turns int }

// Retention removes what is too old from the log. DrySweep only counts it. Both fail with projections.ErrNotYet if a
// view is not ready for that.
type Retention interface {
	Sweep(ctx context.Context) (Swept, error)
	DrySweep(ctx context.Context) (Swept, error)
}
