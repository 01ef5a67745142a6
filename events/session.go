package events

import (
	"cmp"
	"strconv"
)

// SessionLinked says: the session, from its beginning on, belongs to an identity.
type SessionLinked struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id"`
}

// Type implements Fact.
func (f *SessionLinked) Type() string { return TypeSessionLinked }

// EventID implements Fact.
func (f *SessionLinked) EventID() string { return pairEventID(f.SessionID, f.IdentityID, "linked") }

// Subject implements Fact.
func (f *SessionLinked) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionLinked) names() Names          { return Names{} }
func (f *SessionLinked) texts() Texts          { return Texts{} }
func (f *SessionLinked) withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionLinked) check([]byte) Problem  { return cmp.Or(badID(f.SessionID), badID(f.IdentityID)) }

// LinkRefused says: a caller asked to link the session, which belongs to another identity. After is the session's last
// position when the link was refused; it gives each attempt an event id of its own.
type LinkRefused struct {
	SessionID  string   `json:"session_id"`
	IdentityID string   `json:"identity_id"`
	SourceHash string   `json:"source_hash,omitempty"`
	After      Position `json:"after,omitzero"`
}

// Type implements Fact.
func (f *LinkRefused) Type() string { return TypeLinkRefused }

// EventID implements Fact.
func (f *LinkRefused) EventID() string {
	attempt := f.IdentityID
	if f.After.Seq != 0 {
		attempt += "\x00" + f.SourceHash + "\x00" + strconv.FormatUint(f.After.Seq, 10)
	}
	return pairEventID(f.SessionID, attempt, "link_refused")
}

// Subject implements Fact.
func (f *LinkRefused) Subject() string { return SessionSubject(f.SessionID) }

func (f *LinkRefused) names() Names          { return Names{} }
func (f *LinkRefused) texts() Texts          { return Texts{} }
func (f *LinkRefused) withdraws() Withdrawal { return WithdrawsNothing }
func (f *LinkRefused) check([]byte) Problem  { return cmp.Or(badID(f.SessionID), badID(f.IdentityID)) }

// SessionReset says: prompts and history start after it; nothing is deleted. After is the session's last position when
// the reset was decided; it gives each reset an event id of its own.
type SessionReset struct {
	SessionID string   `json:"session_id"`
	After     Position `json:"after"`
	Reason    string   `json:"reason,omitempty"`
}

// Type implements Fact.
func (f *SessionReset) Type() string { return TypeSessionReset }

// EventID implements Fact.
func (f *SessionReset) EventID() string {
	return pairEventID(f.SessionID, strconv.FormatUint(f.After.Seq, 10), "reset")
}

// Subject implements Fact.
func (f *SessionReset) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionReset) names() Names          { return Names{} }
func (f *SessionReset) texts() Texts          { return Texts{} }
func (f *SessionReset) withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionReset) check([]byte) Problem  { return badID(f.SessionID) }
