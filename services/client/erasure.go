package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Erase asks for a session or an identity to be forgotten: one of both is named. Reason
// and RedactedBy are kept in the log for ever.
type Erase struct {
	SessionID  string `json:"-"`
	IdentityID string `json:"-"`
	Reason     string `json:"reason,omitempty"`
	RedactedBy string `json:"redacted_by,omitempty"`
}

// Receipt tells what an erasure has reached. State is running or complete.
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

// Complete tells whether the erasure has reached everything.
func (r Receipt) Complete() bool { return r.State == "complete" }

// ReceiptPlace is what an erasure has done in the log, or in a view. Erased is nil where
// nobody has counted.
type ReceiptPlace struct {
	Place    string    `json:"place"`
	State    string    `json:"state"`
	Erased   *int      `json:"erased"`
	ErasedAt time.Time `json:"erased_at"`
}

// Erase closes a session for ever, or erases all sessions of an identity, and gives the
// id of the receipt that tells how far that is.
func (c *Client) Erase(ctx context.Context, e Erase) (receiptID string, err error) {
	what, path := "erase session", "/sessions/"+escape(e.SessionID)
	if e.IdentityID != "" {
		what, path = "erase identity", "/identities/"+escape(e.IdentityID)
	}
	var out struct {
		ReceiptID string `json:"receipt_id"`
	}
	err = c.do(ctx, request{what, http.MethodDelete, path, e, true}, &out)
	return out.ReceiptID, err
}

// Receipt tells what an erasure has reached: by the id that Erase gave, or by the
// position of a redaction.
func (c *Client) Receipt(ctx context.Context, id string) (r Receipt, err error) {
	err = c.do(ctx, request{"look at a receipt", http.MethodGet, "/receipts/" + escape(id), nil, true}, &r)
	return r, err
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
func (c *Client) Sweep(ctx context.Context, dry bool) (s Swept, err error) {
	v := url.Values{}
	if dry {
		v.Set("dry_run", "true")
	}
	err = c.do(ctx, request{"sweep", http.MethodPost, withQuery("/retention", v), nil, true}, &s)
	return s, err
}
