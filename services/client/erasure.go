package client

import (
	"context"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// Erase asks for an erasure. It names either a session or an identity. Reason and RedactedBy are kept in the log for
// ever.
type Erase struct {
	SessionID  string `json:"-"`
	IdentityID string `json:"-"`
	Reason     string `json:"reason,omitempty"`
	RedactedBy string `json:"redacted_by,omitempty"`
}

// Receipt shows how far an erasure is. State is running or complete. Branches is how many branches lost turns that they
// shared, and SharedTurns how many turns these were; both are nil for a redaction, and while they are not known.
type Receipt struct {
	ReceiptID   string         `json:"receipt_id"`
	Kind        string         `json:"kind"`
	SessionID   string         `json:"session_id"`
	IdentityID  string         `json:"identity_id"`
	TurnID      string         `json:"turn_id"`
	State       string         `json:"state"`
	Position    string         `json:"position"`
	RequestedAt time.Time      `json:"requested_at"`
	CompletedAt time.Time      `json:"completed_at"`
	Branches    *int           `json:"branches"`
	SharedTurns *int           `json:"shared_turns"`
	Places      []ReceiptPlace `json:"places"`
	Progress    *struct {
		Events       int      `json:"events"`
		Erased       int      `json:"erased"`
		Sessions     int      `json:"sessions"`
		SessionsDone int      `json:"sessions_done"`
		ETASeconds   *float64 `json:"eta_seconds"`
	} `json:"progress"`
}

// Complete reports whether the erasure is done in every place.
func (r Receipt) Complete() bool { return r.State == "complete" }

// ReceiptPlace is what an erasure has done in the log, or in a view. Erased is nil if it was not counted.
// Why says why it is not proved that a text is gone, and what an operator must do.
type ReceiptPlace struct {
	Place    string    `json:"place"`
	State    string    `json:"state"`
	Erased   *int      `json:"erased"`
	ErasedAt time.Time `json:"erased_at"`
	Why      string    `json:"why"`
}

// Erase closes a session for ever, or erases all sessions of an identity, and returns the
// id of the receipt that shows how far the erasure is.
func (c *Client) Erase(ctx context.Context, e Erase) (receiptID string, err error) {
	what, path := "erase session", "/sessions/"+escape(e.SessionID)
	if e.IdentityID != "" {
		what, path = "erase identity", "/identities/"+escape(e.IdentityID)
	}
	return callField[string](ctx, c, "receipt_id", request{what, http.MethodDelete, path, e, repeatable})
}

// Receipt returns how far an erasure is. The id is the one that Erase returned, or the position of a redaction.
func (c *Client) Receipt(ctx context.Context, id string) (Receipt, error) {
	return call[Receipt](ctx, c, get("look at a receipt", "/receipts/"+escape(id)))
}

// ReceiptPage is a page of receipts, the newest first. It may be short, even empty; NextCursor is empty only at the
// end.
type ReceiptPage struct {
	Receipts   []Receipt `json:"receipts"`
	NextCursor string    `json:"next_cursor"`
}

// Receipts lists the receipts of redactions and erasures. A limit of 0 is the server's; cursor is the NextCursor of the
// page before, or empty.
func (c *Client) Receipts(ctx context.Context, limit int, cursor string) (ReceiptPage, error) {
	return call[ReceiptPage](ctx, c, get("list receipts", "/receipts", "limit", number(limit), "cursor", cursor))
}

// Key is what may be shown of an API key; times are zero where there are none.
type Key struct {
	Prefix     string    `json:"prefix"`
	Name       string    `json:"name"`
	Scopes     []string  `json:"scopes"`
	IdentityID string    `json:"identity_id"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	RevokedAt  time.Time `json:"revoked_at"`
	State      string    `json:"state"`
}

// Keys lists the API keys of the file that the server reads, without their secrets.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	return callField[[]Key](ctx, c, "keys", get("list keys", "/keys"))
}

// AwaitReceipt polls the receipt of an erasure until the erasure is complete. It calls told with the progress, in the
// receipt's unit.
func (c *Client) AwaitReceipt(ctx context.Context, id string, every time.Duration, report func(done, of uint64)) error {
	for ; ; pause.For(ctx, every) {
		r, err := c.Receipt(ctx, id)
		if err != nil || r.Complete() {
			return err
		}
		report(r.progress())
	}
}

// Unit returns the unit of the progress: sessions for an identity, otherwise events.
func (r Receipt) Unit() string {
	if r.Kind == "identity" {
		return "sessions"
	}
	return "events"
}

// progress returns how much of an erasure is done; of is 0 while the total is not known.
func (r Receipt) progress() (done, of uint64) {
	switch p := r.Progress; {
	case p == nil:
		return 0, 0
	case p.Sessions > 0:
		return uint64(max(p.SessionsDone, 0)), uint64(p.Sessions)
	default:
		return uint64(max(p.Erased, 0)), uint64(max(p.Events, 0))
	}
}

// Swept counts what a retention removed, or would remove.
type Swept struct {
	DryRun    bool `json:"dry_run"`
	Anonymous struct {
		Sessions int `json:"sessions"`
		Events   int `json:"events"`
	} `json:"anonymous"`
	Linked struct {
		Sessions int `json:"sessions"`
		Turns    int `json:"turns"`
	} `json:"linked"`
}

// Sweep removes what is too old now, or with dry only counts it.
func (c *Client) Sweep(ctx context.Context, dry bool) (Swept, error) {
	path := "/retention"
	if dry {
		path += "?dry_run=true"
	}
	return call[Swept](ctx, c, request{"sweep", http.MethodPost, path, nil, repeatable})
}
