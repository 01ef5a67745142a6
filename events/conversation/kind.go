package conversation

// Kind says what an event did to its session.
type Kind uint8

// The kinds. The first three change no view: a Seen event was folded before, a Duplicate says again
// what the log says, and an Anomaly contradicts the log or states nothing. The other kinds name what
// changed.
const (
	Seen Kind = iota
	Duplicate
	Anomaly
	Started
	Answered
	Linked
	Corrected
	TurnGone
	Reset
	Erased
	// Refused is an attempt to link the session to another identity.
	Refused
	// Noted concerns an identity and no one session, or is the receipt of an erasure.
	Noted
)

// String returns the kind's name in metrics and tables.
func (k Kind) String() string {
	switch k {
	case Seen:
		return "seen"
	case Duplicate:
		return "duplicate"
	case Anomaly:
		return "anomaly"
	case Started:
		return "started"
	case Answered:
		return "answered"
	case Linked:
		return "linked"
	case Corrected:
		return "corrected"
	case TurnGone:
		return "redacted"
	case Reset:
		return "reset"
	case Erased:
		return "erased"
	case Refused:
		return "link_refused"
	case Noted:
		return "noted"
	}
	return "unknown"
}

// Applied reports whether a view may have something to do.
func (k Kind) Applied() bool {
	switch k {
	case Seen, Duplicate, Anomaly:
		return false
	case Started, Answered, Linked, Corrected, TurnGone, Reset, Erased, Refused, Noted:
		return true
	}
	return false
}

// ChangesSession reports whether the event may have changed its session or a turn of it.
func (k Kind) ChangesSession() bool {
	switch k {
	case Seen, Duplicate, Anomaly, Refused, Noted:
		return false
	case Started, Answered, Linked, Corrected, TurnGone, Reset, Erased:
		return true
	}
	return false
}
