package events

import "strconv"

// SessionLinked says: the session belongs to an identity, from its beginning on.
type SessionLinked struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id"`
}

func (f *SessionLinked) Type() string { return TypeSessionLinked }
func (f *SessionLinked) EventID() string {
	return pairID(f.SessionID, f.IdentityID).String() + ".linked"
}
func (f *SessionLinked) Subject() string       { return SessionSubject(f.SessionID) }
func (f *SessionLinked) Names() Names          { return Names{} }
func (f *SessionLinked) Texts() Texts          { return Texts{} }
func (f *SessionLinked) Withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionLinked) check([]byte) Problem {
	return firstOf(badID(f.SessionID), badID(f.IdentityID))
}

// LinkRefused says: somebody asked to link a session that belongs to another identity.
type LinkRefused struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id"`
	SourceHash string `json:"source_hash,omitempty"`
}

func (f *LinkRefused) Type() string          { return TypeLinkRefused }
func (f *LinkRefused) Subject() string       { return SessionSubject(f.SessionID) }
func (f *LinkRefused) Names() Names          { return Names{} }
func (f *LinkRefused) Texts() Texts          { return Texts{} }
func (f *LinkRefused) Withdraws() Withdrawal { return WithdrawsNothing }
func (f *LinkRefused) check([]byte) Problem  { return firstOf(badID(f.SessionID), badID(f.IdentityID)) }
func (f *LinkRefused) EventID() string {
	return pairID(f.SessionID, f.IdentityID).String() + ".link_refused"
}

// SessionReset says: prompts and history start after it; nothing is deleted. After is
// the session's last position when the reset was decided; it makes the event
// id of each reset its own.
type SessionReset struct {
	SessionID string   `json:"session_id"`
	After     Position `json:"after"`
	Reason    string   `json:"reason,omitempty"`
}

func (f *SessionReset) Type() string          { return TypeSessionReset }
func (f *SessionReset) Subject() string       { return SessionSubject(f.SessionID) }
func (f *SessionReset) Names() Names          { return Names{} }
func (f *SessionReset) Texts() Texts          { return Texts{} }
func (f *SessionReset) Withdraws() Withdrawal { return WithdrawsNothing }
func (f *SessionReset) check([]byte) Problem  { return badID(f.SessionID) }
func (f *SessionReset) EventID() string {
	return pairID(f.SessionID, strconv.FormatUint(f.After.Seq, 10)).String() + ".reset"
}
