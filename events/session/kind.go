package session

// Kind is what an event did to its session.
type Kind uint8

// The kinds, in groups. The first three change no view: a Seen event was folded before, a Duplicate repeats what the
// log says, and an Anomaly contradicts the log or states nothing. The next two leave the session unchanged, but a view
// may record them. The other kinds name what changed in the session.
const (
	Seen Kind = iota
	Duplicate
	Anomaly
	// Refused is an attempt to link the session to another identity.
	Refused
	// Noted is about an identity and no single session, or is the receipt of an erasure.
	Noted
	Started
	Answered
	// WasExtended: messages were appended to a half of a turn.
	WasExtended
	Linked
	Corrected
	// Pruned: messages were taken out of a turn.
	Pruned
	TurnGone
	Reset
	Described
	// Forked began the session as a branch of another, and Branched marks it as one that has a branch.
	Forked
	Branched
	Summarized
	Erased
)

var kindNames = [...]string{
	Seen: "seen", Duplicate: "duplicate", Anomaly: "anomaly", Refused: "link_refused", Noted: "noted",
	Started: "started", Answered: "answered", WasExtended: "extended", Linked: "linked", Corrected: "corrected",
	Pruned: "pruned", TurnGone: "redacted", Reset: "reset", Described: "described", Summarized: "summarized",
	Forked:   "forked",
	Branched: "branched", Erased: "erased",
}

// String returns the kind's name in metrics and tables.
func (k Kind) String() string { return kindNames[k] }

// ChangesView reports whether the event may change a view.
func (k Kind) ChangesView() bool { return k > Anomaly }

// ChangesSession reports whether the event may have changed its session or a turn of it.
func (k Kind) ChangesSession() bool { return k > Noted }
