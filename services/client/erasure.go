package client

import (
	"context"
	"net/http"
	"time"
)

// Erase asks for an erasure. It names either a session or an identity. Reason and RedactedBy are kept in the log for
// ever.
type Erase struct {
	SessionID  string `json:"-"`
	IdentityID string `json:"-"`
	Reason     string `json:"reason,omitempty"`
	RedactedBy string `json:"redacted_by,omitempty"`
}

// Receipt shows what an erasure has reached. State is running or complete.
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
	Places      []ReceiptPlace `json:"places"`
	Progress    *struct {
		Events       int      `json:"events"`
		Erased       int      `json:"erased"`
		Sessions     int      `json:"sessions"`
		SessionsDone int      `json:"sessions_done"`
		ETASeconds   *float64 `json:"eta_seconds"`
	} `json:"progress"`
}

// Complete reports whether the erasure has reached everything.
func (r Receipt) Complete() bool { return r.State == "complete" }

// ReceiptPlace is what an erasure has done in the log, or in a view. Erased is nil where
// nobody has counted.
type ReceiptPlace struct {
	Place    string    `json:"place"`
	State    string    `json:"state"`
	Erased   *int      `json:"erased"`
	ErasedAt time.Time `json:"erased_at"`
}

// Erase closes a session for ever, or erases all sessions of an identity, and returns the
// id of the receipt that shows how far the erasure is.
func (c *Client) Erase(ctx context.Context, e Erase) (receiptID string, err error) {
	what, path := "erase session", "/sessions/"+escape(e.SessionID)
	if e.IdentityID != "" {
		what, path = "erase identity", "/identities/"+escape(e.IdentityID)
	}
	return member[string](ctx, c, "receipt_id", request{what, http.MethodDelete, path, e, true})
}

// Receipt returns what an erasure has reached. The id is that of Erase, or the position of a redaction.
func (c *Client) Receipt(ctx context.Context, id string) (Receipt, error) {
	return call[Receipt](ctx, c, get("look at a receipt", "/receipts/"+escape(id)))
}

// Swept counts what a retention took out, or would.
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

// Sweep takes out what is too old now, or with dry only counts it.
func (c *Client) Sweep(ctx context.Context, dry bool) (Swept, error) {
	path := "/retention"
	if dry {
		path += "?dry_run=true"
	}
	return call[Swept](ctx, c, request{"sweep", http.MethodPost, path, nil, true})
}
