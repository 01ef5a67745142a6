package session

// Kind is what an event did to its session.
type Kind uint8

// The kinds. The first three change no view: a Seen event was folded before, a Duplicate repeats what the log says, and
// an Anomaly contradicts the log or states nothing. The next two leave the session unchanged, but a view may record
// them. The other kinds name what changed in the session.
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
	// Recorded: a turn came whole, with its question and its answer.
	Recorded
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

// Group is what a change asks of a view of sessions and their turns.
type Group uint8

// The groups.
const (
	// GroupNone: the session and its turns are as they were.
	GroupNone Group = iota
	// GroupHead: the session has another head, and its turns are as they were.
	GroupHead
	// GroupText: the turn Change.Turn has the texts that the event brings (events.TextsOf), beside those that it had. It
	// takes the place of the turns Change.Turns.
	GroupText
	// GroupGone: the turns Change.Turns are tombstones. Where something is left of the turn (Change.Left), the event
	// brings all of its texts.
	GroupGone
	// GroupSessionGone: the session is closed, and its turns are gone.
	GroupSessionGone
)

var kinds = [...]struct {
	name  string
	group Group
}{
	Seen: {"seen", GroupNone}, Duplicate: {"duplicate", GroupNone}, Anomaly: {"anomaly", GroupNone},
	Refused: {"link_refused", GroupNone}, Noted: {"noted", GroupNone},
	Started: {"started", GroupText}, Answered: {"answered", GroupText}, Recorded: {"recorded", GroupText},
	WasExtended: {"extended", GroupText}, Corrected: {"corrected", GroupText},
	Pruned: {"pruned", GroupGone}, TurnGone: {"redacted", GroupGone},
	Linked: {"linked", GroupHead}, Reset: {"reset", GroupHead}, Described: {"described", GroupHead},
	Forked: {"forked", GroupHead}, Branched: {"branched", GroupHead}, Summarized: {"summarized", GroupHead},
	Erased: {"erased", GroupSessionGone},
}

// String returns the kind's name in metrics and tables.
func (k Kind) String() string { return kinds[k].name }

// Group returns what the kind asks of a view.
func (k Kind) Group() Group { return kinds[k].group }

// ChangesView reports whether the event may change a view.
func (k Kind) ChangesView() bool { return k > Anomaly }

// ChangesSession reports whether the event may have changed its session or a turn of it.
func (k Kind) ChangesSession() bool { return k.Group() != GroupNone }
