package recent

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Held is what a view in memory holds of a session: its head, and a record of each turn, as Redis has them. The
// collector finds one object a turn in it, and a reader is given texts that are parts of the records. Not safe for
// concurrent use.
type Held struct {
	// Applied is the sequence of the session's last event that was applied.
	Applied uint64
	// Whole is false if turns have been left out.
	Whole bool
	head  session.Head
	turns []heldTurn // in the order of their places
	bytes int
}

// heldTurn is the record of a turn. It never changes, since readers have parts of it; what extends the turn waits in
// more until it is worth another record. So the cost of an extension does not grow with the turn.
type heldTurn struct {
	record string
	more   []byte
}

// NewHeld returns what is held of a folded session that Trim has reduced.
func NewHeld(folded *session.State) *Held {
	h := &Held{Applied: folded.Applied, Whole: folded.Whole, head: folded.Head()}
	for _, t := range folded.Turns {
		h.put(len(h.turns), t)
	}
	return h
}

// Bytes estimates what is held in memory, the session's place in its view included.
func (h *Held) Bytes() int { return h.bytes + sizeOfHeld + sizeOfTurn*len(h.turns) }

const (
	sizeOfHeld = 512
	sizeOfTurn = 64 // its place in the list, and what its record is rounded up by
)

// Apply applies the next event that changes the session, and leaves the newest turns, up to most.
func (h *Held) Apply(e *projections.Judged, rules session.Rules, most int) {
	h.Applied, h.head = e.Position.Seq, e.Head
	switch e.Change.Kind.Group() {
	case session.GroupText:
		h.text(e, rules)
	case session.GroupGone:
		if t := e.Change.Left(); t != nil {
			h.swap(t.ID, t)
		} else {
			h.remove(e.Change.Turns)
		}
	case session.GroupSessionGone:
		h.turns, h.bytes = nil, 0
	case session.GroupHead, session.GroupNone:
	}
	for ; len(h.turns) > most; h.Whole = false {
		h.bytes -= h.turns[0].size()
		h.turns[0], h.turns = heldTurn{}, h.turns[1:]
	}
}

// text applies an event that brings texts to a turn.
func (h *Held) text(e *projections.Judged, rules session.Rules) {
	t, texts := e.Change.Turn, events.TextsOf(e.Fact)
	switch at := h.find(t.ID); {
	case texts.Question == nil && at < 0: // the turn was left out
	case texts.Extension != nil:
		h.extend(&h.turns[at], func(b []byte) []byte {
			return AppendExtension(b, rules, t, texts)
		})
	case texts.Question == nil:
		if r := h.turns[at].whole(); r[1] == pending {
			b := AppendAnswer(append(make([]byte, 0, len(r)+sizeOfAnswer(t)+sizeOfNumbers), r...), t)
			b[1] = finalized
			h.set(at, string(b))
		}
	case t.Corrects():
		h.swap(t.Replaces, t)
		h.Whole = false
	default:
		h.insert(t)
	}
}

// find returns the index of a turn, or -1. It is mostly the newest.
func (h *Held) find(id uuid.UUID) int {
	for i, t := range slices.Backward(h.turns) {
		if idOf(t.record) == string(id[:]) {
			return i
		}
	}
	return -1
}

// insert puts a turn into its place.
func (h *Held) insert(t *session.Turn) {
	at := len(h.turns)
	for at > 0 && placeOf(h.turns[at-1].record) > t.Place {
		at--
	}
	h.put(at, t)
}

func (h *Held) put(at int, t *session.Turn) {
	h.turns = slices.Insert(h.turns, at, heldTurn{})
	h.set(at, string(Record(t)))
}

// set replaces the record of a turn.
func (h *Held) set(at int, record string) {
	h.bytes += len(record) - h.turns[at].size()
	h.turns[at] = heldTurn{record: record}
}

// swap puts a turn in the place of the one with an id. A turn that is not held is older than all that are, or its other
// events have left the log, and then the event alone brings it.
func (h *Held) swap(id uuid.UUID, t *session.Turn) {
	switch at := h.find(id); {
	case at >= 0:
		h.set(at, string(Record(t)))
	case h.Whole, len(h.turns) > 0 && placeOf(h.turns[0].record) < t.Place:
		h.insert(t)
	}
}

// remove takes out turns. The records of the others are copied, since they may be parts of one text (Unpack) that has
// those of the turns, too.
func (h *Held) remove(gone []*session.Turn) {
	rest := h.turns
	h.turns, h.bytes, h.Whole = nil, 0, false
	for _, t := range rest {
		if !slices.ContainsFunc(gone, func(g *session.Turn) bool { return idOf(t.record) == string(g.ID[:]) }) {
			h.turns = append(h.turns, heldTurn{strings.Clone(t.record), t.more})
			h.bytes += t.size()
		}
	}
}

// extend adds an extension to a turn. Half as much again is worth another record.
func (h *Held) extend(t *heldTurn, add func([]byte) []byte) {
	before := t.size()
	if t.more = add(t.more); len(t.more) > len(t.record)/2 {
		*t = heldTurn{record: t.whole()}
	}
	h.bytes += t.size() - before
}

func (t heldTurn) size() int { return len(t.record) + len(t.more) }

func (t heldTurn) whole() string {
	if len(t.more) == 0 {
		return t.record
	}
	return t.record + string(t.more)
}

// State returns the session with so many of its newest turns that shown finalized ones are among them; all of them if
// shown is negative. Like a state from Redis, it does not tell the repeat of an event from another event.
func (h *Held) State(sessionID string, rules session.Rules, shown int) (*session.State, error) {
	n := 0
	for ; n < len(h.turns) && shown != 0; n++ {
		if shown > 0 && h.turns[len(h.turns)-1-n].record[1] == finalized {
			shown--
		}
	}
	s := session.New(sessionID, rules)
	s.Adopt(h.head)
	s.Applied, s.Whole = h.Applied, h.Whole && n == len(h.turns)
	places := make([]place, n)
	s.Turns = make([]*session.Turn, n)
	for i, t := range h.turns[len(h.turns)-n:] {
		if err := places[i].read(t.whole()); err != nil {
			return nil, err
		}
		s.Turns[i] = &places[i].turn
	}
	return s, nil
}
