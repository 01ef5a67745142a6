package conversation

// Kind says what an event did to its session.
type Kind uint8

// The kinds, by what they change. The first three change no view: a Seen event was folded before, a Duplicate
// says again what the log says, and an Anomaly contradicts the log or states nothing. A view may note the next two,
// which leave the session as it is. The other kinds name what changed in the session.
const (
	Seen Kind = iota
	Duplicate
	Anomaly
	// Refused is an attempt to link the session to another identity.
	Refused
	// Noted concerns an identity and no one session, or is the receipt of an erasure.
	Noted
	Started
	Answered
	Linked
	Corrected
	TurnGone
	Reset
	Erased
)

var kindNames = [...]string{
	Seen: "seen", Duplicate: "duplicate", Anomaly: "anomaly", Refused: "link_refused", Noted: "noted",
	Started: "started", Answered: "answered", Linked: "linked", Corrected: "corrected",
	TurnGone: "redacted", Reset: "reset", Erased: "erased",
}

// String returns the kind's name in metrics and tables.
func (k Kind) String() string { return kindNames[k] }

// Applied reports whether a view may have something to do.
func (k Kind) Applied() bool { return k > Anomaly }

// ChangesSession reports whether the event may have changed its session or a turn of it.
func (k Kind) ChangesSession() bool { return k > Noted }
