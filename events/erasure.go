package events

import (
	"bytes"
	"cmp"
	"regexp"
	"time"
)

// SessionErased closes a session for ever and removes its turns from every view. IdentityID is set if the session is
// erased with its identity.
type SessionErased struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id,omitempty"`
	ReceiptID  string `json:"receipt_id"`
	Reason     string `json:"reason,omitempty"`
	ErasedBy   string `json:"erased_by,omitempty"`
}

// Type implements Fact.
func (f *SessionErased) Type() string { return TypeSessionErased }

// EventID implements Fact.
func (f *SessionErased) EventID() string { return pairEventID(f.SessionID, f.ReceiptID, "erased") }

// Subject implements Fact.
func (f *SessionErased) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionErased) names() Names          { return Names{} }
func (f *SessionErased) texts() Texts          { return Texts{} }
func (f *SessionErased) withdraws() Withdrawal { return WithdrawsSession }
func (f *SessionErased) check([]byte) Problem {
	if f.IdentityID == "" {
		return cmp.Or(badID(f.SessionID), badID(f.ReceiptID))
	}
	return cmp.Or(badID(f.SessionID), badID(f.IdentityID), badID(f.ReceiptID))
}

// IdentityErased erases all sessions of an identity, also those that are linked later.
type IdentityErased struct {
	IdentityID string `json:"identity_id"`
	ReceiptID  string `json:"receipt_id"`
	Reason     string `json:"reason,omitempty"`
	ErasedBy   string `json:"erased_by,omitempty"`
}

// Type implements Fact.
func (f *IdentityErased) Type() string { return TypeIdentityErased }

// EventID implements Fact.
func (f *IdentityErased) EventID() string {
	return pairEventID(f.IdentityID, f.ReceiptID, "identity_erased")
}

// Subject implements Fact.
func (f *IdentityErased) Subject() string { return IdentitySubject(f.IdentityID) }

func (f *IdentityErased) names() Names          { return Names{} }
func (f *IdentityErased) texts() Texts          { return Texts{} }
func (f *IdentityErased) withdraws() Withdrawal { return WithdrawsIdentity }
func (f *IdentityErased) check([]byte) Problem {
	return cmp.Or(badID(f.IdentityID), badID(f.ReceiptID))
}

// Of returns the erasure of one of the identity's sessions, under the same receipt.
func (f *IdentityErased) Of(sessionID string) *SessionErased {
	return &SessionErased{
		SessionID: sessionID, IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Reason: f.Reason, ErasedBy: f.ErasedBy,
	}
}

// ErasureReceipt says what an erasure has done in one place of storage. It belongs to an erased session, or to an
// erased identity with Sessions sessions. It stands in the log after the erasure. That of the log says how many
// Branches lost turns that they shared, and how many such SharedTurns there were.
type ErasureReceipt struct {
	IdentityID string `json:"identity_id,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	ReceiptID  string `json:"receipt_id"`
	Place      string `json:"place"`
	Erased     int    `json:"erased"`
	Sessions   int    `json:"sessions,omitempty"`

	Branches    int `json:"branches,omitempty"`
	SharedTurns int `json:"shared_turns,omitempty"`
}

// Type implements Fact.
func (f *ErasureReceipt) Type() string { return TypeErasureReceipt }

// EventID implements Fact.
func (f *ErasureReceipt) EventID() string {
	if f.SessionID != "" {
		// The sessions of an identity share one receipt id.
		return pairEventID(pairID(f.SessionID, f.ReceiptID).String(), f.Place, "receipt")
	}
	return pairEventID(f.ReceiptID, f.Place, "receipt")
}

// Subject implements Fact.
func (f *ErasureReceipt) Subject() string {
	if f.SessionID != "" {
		return SessionSubject(f.SessionID)
	}
	return IdentitySubject(f.IdentityID)
}

func (f *ErasureReceipt) names() Names          { return Names{} }
func (f *ErasureReceipt) texts() Texts          { return Texts{} }
func (f *ErasureReceipt) withdraws() Withdrawal { return WithdrawsNothing }
func (f *ErasureReceipt) check(body []byte) Problem {
	if f.SessionID != "" && f.IdentityID == "" {
		return cmp.Or(badID(f.SessionID), badID(f.ReceiptID), f.inexact(body))
	}
	return cmp.Or(badID(f.IdentityID), badID(f.ReceiptID), f.inexact(body))
}

var placeName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// inexact compares a session's receipt with its exact form. A receipt is the only event that may follow the erasure of
// its session and stay in the log, so it must not carry any other text.
func (f *ErasureReceipt) inexact(body []byte) Problem {
	if f.SessionID == "" {
		return ""
	}
	exact, err := Encode(f, time.Time{})
	if err != nil || badID(f.SessionID) != "" || !placeName.MatchString(f.Place) || !bytes.Equal(exact.Body, body) {
		return ProblemReceipt
	}
	return ""
}
