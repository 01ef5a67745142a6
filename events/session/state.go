package session

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// State is a session folded up to Applied. New returns the State of a session that the log does not know. Not safe for
// concurrent use.
type State struct {
	SessionID string
	head
	// Turns stand in the order of their places, a correction right after the turn it
	// replaces.
	Turns []*Turn
	// Applied is the sequence of the last folded event of the session, anomalies included. An append that was decided
	// on this state expects it as the session's last sequence.
	Applied uint64
	// Whole is false if turns have been left out. Such a state can't tell a new turn from a turn that was left out.
	Whole bool

	// silence is Change.Silence. A state that took its head from a view does not know it.
	silence uint64

	// slim, ttl and keys are the Rules, without the room that a struct of their own takes: a view holds many states.
	slim bool
	ttl  time.Duration
	keys []string
	// rare is nil while nobody has described the session, and it has no branch and shares no turn.
	rare  *rare
	index map[uuid.UUID]*Turn
	// size is that of a slim state's strings, extensions and rare parts, in bytes.
	size int
}

// Rules are settings of the fold. All views of one log need the same rules.
type Rules struct {
	// SessionTTL is how long an anonymous session may be silent. A longer silence is a boundary.
	SessionTTL time.Duration
	// MetadataKeys are the keys of metadata that views may show; nil means all. Events that other
	// publishers wrote may hold other keys.
	MetadataKeys []string
	// Slim makes the state keep ids, positions and flags, and no text.
	Slim bool
}

// New returns the state of a session without events.
func New(sessionID string, rules Rules) *State {
	return &State{
		SessionID: sessionID, Whole: true, slim: rules.Slim, ttl: rules.SessionTTL, keys: rules.MetadataKeys,
	}
}

func (s *State) rules() Rules { return Rules{s.ttl, s.keys, s.slim} }

// Head is the state of a session without its turns. All its numbers but the counts are sequences.
type Head struct {
	// Identity is empty while the session is anonymous.
	Identity string
	// LinkedAt is the link to the identity, ResetAt the last reset, and Erased the event that closed the session for
	// ever. Prompts, history and backfill take only turns whose place is after Boundary. Each is 0 if there is none.
	LinkedAt, Boundary, ResetAt, Erased uint64
	CreatedAt, LastActive, ErasedAt     time.Time
	HeldDescription
	// Counts include turns that a capped view has left out.
	Counts
}

// head is Head under another name, since State has a method Head.
type head = Head

// Counts are the numbers of a session's turns. A correction and the turn it replaces count as one turn, and a redacted
// turn does not count.
type Counts struct {
	// Finalized and Pending count all turns, ShownFinalized and ShownPending those after the boundary.
	Finalized, Pending           int
	ShownFinalized, ShownPending int
}

// Head returns the state's head.
func (s *State) Head() Head { return s.head }

// Adopt replaces the state's head, for views that hold only part of a session's turns.
func (s *State) Adopt(h Head) { s.head = h }

// Found reports whether the log knows the session.
func (s *State) Found() bool { return !s.CreatedAt.IsZero() }

// Turn returns the turn with an id, or nil.
func (s *State) Turn(id uuid.UUID) *Turn {
	if s.index != nil {
		return s.index[id]
	}
	for _, t := range slices.Backward(s.Turns) {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// indexFrom is the number of turns from which a map is worth its cost.
const indexFrom = 32

// insert puts t in its place and keeps the order.
func (s *State) insert(t *Turn) {
	at := len(s.Turns)
	for at > 0 && after(s.Turns[at-1], t) {
		at--
	}
	s.Turns = slices.Insert(s.Turns, at, t)
	if s.index != nil {
		s.index[t.ID] = t
		return
	}
	s.makeIndex()
}

// makeIndex makes the map of the turns if there are enough of them.
func (s *State) makeIndex() {
	s.index = nil
	if len(s.Turns) < indexFrom {
		return
	}
	s.index = make(map[uuid.UUID]*Turn, 2*len(s.Turns))
	for _, t := range s.Turns {
		s.index[t.ID] = t
	}
}

func after(a, b *Turn) bool {
	return a.Place > b.Place || a.Place == b.Place && a.Version > b.Version
}

// DropOldest removes the oldest turns until at most keep are left, and returns how many it removed. It is for capped
// views; a State that lost turns is not Whole.
func (s *State) DropOldest(keep int) int {
	n := len(s.Turns) - keep
	if n <= 0 {
		return 0
	}
	for _, t := range s.Turns[:n] {
		delete(s.index, t.ID)
	}
	// The copy frees the memory of the dropped turns.
	s.Turns = append(make([]*Turn, 0, keep+keep/8+1), s.Turns[n:]...)
	s.Whole = false
	return n
}

// Remove removes turns, for a view that keeps neither tombstones nor replaced turns. A State that lost turns is not
// Whole.
func (s *State) Remove(gone func(*Turn) bool) {
	s.Turns = slices.DeleteFunc(s.Turns, func(t *Turn) bool {
		if !gone(t) {
			return false
		}
		delete(s.index, t.ID)
		s.Whole = false
		return true
	})
}

// Clone copies the state; questions and answers are shared, since they never change once they are.
func (s *State) Clone() *State {
	out := s.CloneLast(len(s.Turns))
	out.makeIndex()
	return out
}

// CloneLast copies the state with its last n turns, or all if it has fewer. The copy has no map of its turns until one
// more comes: most copies are only read.
func (s *State) CloneLast(n int) *State {
	out := *s
	from := max(len(s.Turns)-n, 0)
	if from > 0 {
		out.Whole = false
	}
	copies := make([]Turn, len(s.Turns)-from)
	out.Turns = make([]*Turn, len(copies))
	for i, t := range s.Turns[from:] {
		t.shareAnswer()
		copies[i] = *t
		out.Turns[i] = &copies[i]
	}
	out.index = nil
	return &out
}

// Same reports whether two folds of one session have the same heads and silences, and the same turns with their places,
// times and versions. Applied and the texts may differ.
func (s *State) Same(o *State) bool {
	return s.Head() == o.Head() && s.silence == o.silence && slices.EqualFunc(s.Turns, o.Turns, func(a, b *Turn) bool {
		x, y := *a, *b
		for _, t := range []*Turn{&x, &y} {
			t.Question, t.Answer, t.AnswerMetadata, t.extended = nil, nil, nil, nil
		}
		return reflect.DeepEqual(x, y) && a.extended.same(b.extended)
	})
}

// Shown reports whether prompts and history may show a turn: it is neither redacted nor replaced, and lies after the
// boundary.
func (s *State) Shown(t *Turn) bool {
	return t.Place > s.Boundary && (t.Status == Pending || t.Status == Finalized)
}

// Expired reports whether the session has ended at now: it is anonymous, has no kind and was silent for longer than the
// TTL.
func (s *State) Expired(now time.Time) bool {
	return s.Identity == "" && s.Found() && s.Description().Kind == "" && s.silent(now)
}

// Silent reports whether the session is anonymous and was silent for longer than the TTL at now. Retention may remove
// it some time after that, whatever its kind.
func (s *State) Silent(now time.Time) bool { return s.Identity == "" && s.silent(now) }

func (s *State) silent(now time.Time) bool {
	return s.ttl > 0 && !s.LastActive.IsZero() && now.Sub(s.LastActive) > s.ttl
}

// Named returns the turns that an event names, or uuid.Nil. An event without a fact may still hold a turn's text, so
// for such an event Named reads the turns from its id and its body.
func Named(e events.Recorded) (turn, replaces uuid.UUID) {
	if e.Fact == nil {
		return named(e)
	}
	n := events.NamesOf(e.Fact)
	return n.TurnID, n.ReplacesTurnID
}

func named(e events.Recorded) (turn, replaces uuid.UUID) {
	var body struct {
		TurnID         json.RawMessage `json:"turn_id"`
		ReplacesTurnID json.RawMessage `json:"replaces_turn_id"`
	}
	_ = json.Unmarshal(e.Body, &body) // a body that is no object names no turn
	id, _, _ := strings.Cut(e.ID, ".")
	byID := anyUUID([]byte(id))
	turn, replaces = anyUUID(body.TurnID), anyUUID(body.ReplacesTurnID)
	switch {
	case turn == uuid.Nil:
		turn = byID
	case replaces == uuid.Nil && byID != turn:
		replaces = byID
	}
	return turn, replaces
}

func anyUUID(raw []byte) uuid.UUID {
	id, err := uuid.Parse(strings.Trim(string(raw), `"`))
	if err != nil {
		return uuid.Nil
	}
	return id
}

// OtherSession returns the session that an event without a fact names in its body, if that is not the session of its
// subject; else "".
func OtherSession(e events.Recorded) string {
	var body struct {
		SessionID string `json:"session_id"`
	}
	if e.Fact != nil || json.Unmarshal(e.Body, &body) != nil {
		return ""
	}
	if body.SessionID == e.SessionID || events.ValidID(body.SessionID) != nil {
		return ""
	}
	return body.SessionID
}

// NamesGone reports whether the session is erased, or the event names a redacted turn of it.
func (s *State) NamesGone(e events.Recorded) bool { return s.Erased != 0 || s.namesGone(e) }

// namesGone reports whether an event without a fact names a redacted turn.
func (s *State) namesGone(e events.Recorded) bool {
	turn, replaces := named(e)
	for _, id := range []uuid.UUID{turn, replaces} {
		if t := s.Turn(id); t != nil && t.Redacted != 0 {
			return true
		}
	}
	return false
}

// What the parts of a slim state take in memory, in bytes, their strings apart: structs, the slots of lists and maps,
// and what allocations are rounded up by.
const (
	sizeOfTurn      = 288
	sizeOfIndexed   = 80 // more, for a turn that is in a map, too
	sizeOfExtension = 176
	sizeOfBranch    = 192
	sizeOfSummary   = 320
	sizeOfRare      = 384 // with a description and a fork
	sizeOfRequest   = 32  // the hash of a description's request, its characters apart
)

// Size estimates the bytes that a slim state takes in memory, beside its own struct. Texts that its holder has added to
// the turns are not among them. It takes no time.
func (s *State) Size() int {
	n := s.size + sizeOfTurn*len(s.Turns)
	if s.index != nil {
		n += sizeOfIndexed * len(s.Turns)
	}
	return n
}

// resize brings the size of a slim state's strings, extensions and rare parts up to what a fact has changed.
func (s *State) resize(c Change) {
	switch c.Kind {
	case Started, Recorded, Corrected:
		s.size += len(c.Turn.RequestID)
	case WasExtended:
		s.size += sizeOfExtension + len(c.Turn.extended.id)
	case Linked:
		s.size += len(s.Identity)
	case Pruned, TurnGone, Described, Summarized, Forked, Branched, Erased:
		s.size = len(s.Identity) + s.sizeOfRare()
		for _, t := range s.Turns {
			s.size += len(t.RequestID)
			for x := range t.extended.back() {
				s.size += sizeOfExtension + len(x.id)
			}
		}
	case Seen, Duplicate, Anomaly, Answered, Reset, Refused, Noted: // nothing more to hold
	}
}

func (s *State) sizeOfRare() (n int) {
	if s.rare == nil && s.HeldDescription == (HeldDescription{}) {
		return 0
	}
	held, more := s.held(), s.more()
	n = sizeOfRare + len(held.description.Title) + len(held.description.Metadata)
	n += len(held.fork.RequestID) + len(held.fork.From) + len(held.fork.Root) + len(held.fork.Lineage)
	for request, b := range more.marks {
		n += sizeOfBranch + len(request) + len(b.SessionID) + len(b.Root)
	}
	n += sizeOfSummary*len(more.summaries) + 2*len(uuid.Nil)*len(more.voided)
	if d := more.described; d != nil {
		for _, hash := range d.earlier {
			n += sizeOfRequest + len(hash)
		}
	}
	return n
}

// LastText returns the sequence of the session's last event that brought its turns texts, or 0. What redacts a turn, or
// describes the session, is none.
func (s *State) LastText() uint64 {
	if t := s.LastTold(); t != nil {
		return t.Last()
	}
	return 0
}

// LastTold returns the turn that the session's last event with texts brought them, or nil.
func (s *State) LastTold() (last *Turn) {
	for _, t := range s.Turns {
		if _, _, inherited := s.Origin(t, 0); !inherited && t.Last() > 0 && (last == nil || t.Last() > last.Last()) {
			last = t
		}
	}
	return last
}
