package events

import (
	"cmp"
	"time"

	"github.com/google/uuid"
)

// TurnRedacted says: the turn, with all its versions, must never be shown again. Tombstones holds every version, oldest
// first, so that a replay returns the same tombstones when the turn's own events are physically gone. Session does the
// same for the session.
type TurnRedacted struct {
	TurnID     uuid.UUID    `json:"turn_id"`
	SessionID  string       `json:"session_id"`
	IdentityID string       `json:"identity_id,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	RedactedBy string       `json:"redacted_by,omitempty"`
	Tombstones []Tombstone  `json:"tombstones,omitempty"`
	Session    *SessionMark `json:"session,omitempty"`
}

// Type implements Fact.
func (f *TurnRedacted) Type() string { return TypeTurnRedacted }

// EventID implements Fact.
func (f *TurnRedacted) EventID() string { return f.TurnID.String() + ".redacted" }

// Subject implements Fact.
func (f *TurnRedacted) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnRedacted) names() Names          { return Names{TurnID: f.TurnID, SessionID: f.SessionID} }
func (f *TurnRedacted) texts() Texts          { return Texts{} }
func (f *TurnRedacted) withdraws() Withdrawal { return WithdrawsTurn }
func (f *TurnRedacted) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), nilTurn(f.TurnID), f.problem())
}

// Tombstone is what stays of a redacted turn: everything but its texts. Place is the position that orders the turn in
// its session. Position and Final are the positions of the events that opened and answered it, and Extended those of
// the events that extended it, in order. Status is the turn's status before the redaction.
type Tombstone struct {
	TurnID           uuid.UUID  `json:"turn_id"`
	RequestID        string     `json:"request_id"`
	Place            Position   `json:"place"`
	Position         Position   `json:"position"`
	Final            *Position  `json:"final,omitempty"`
	Status           string     `json:"status"`
	CreatedAt        time.Time  `json:"created_at"`
	FinalizedAt      *time.Time `json:"finalized_at,omitempty"`
	RecordVersion    int        `json:"record_version"`
	ReplacesTurnID   *uuid.UUID `json:"replaces_turn_id,omitempty"`
	ReplacedByTurnID *uuid.UUID `json:"replaced_by_turn_id,omitempty"`
	Extended         []Position `json:"extended,omitempty"`
}

// SessionMark is the session's state just before a redaction. It is needed because the turn's own events ended silences
// of the session. A replay without these events would see a longer silence, and hide the turns before it; the mark
// prevents that.
type SessionMark struct {
	Boundary Position `json:"boundary"`
	// Silence is where the last silence ended that is a boundary. It is missing in a session without a reset: there it
	// is the boundary.
	Silence      *Position `json:"silence,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	LastActiveAt time.Time `json:"last_active_at"`
	// Numbers of turns: all of them, and those after the boundary.
	Finalized      int `json:"finalized"`
	Pending        int `json:"pending"`
	ShownFinalized int `json:"shown_finalized"`
	ShownPending   int `json:"shown_pending"`
}

// problem checks that the tombstones are the versions of one turn: each replaces the one before it, all have one place,
// and TurnID is among them. Any other list would bring back turns that the redaction does not cover.
func (f *TurnRedacted) problem() Problem {
	if m := f.Session; m != nil && (min(m.Finalized, m.Pending, m.ShownFinalized, m.ShownPending) < 0 ||
		m.Silence != nil && m.Silence.Seq > m.Boundary.Seq) {
		return ProblemTombstones
	}
	if len(f.Tombstones) == 0 {
		return ""
	}
	versions := map[uuid.UUID]int{}
	for i, t := range f.Tombstones {
		versions[t.TurnID]++
		if t.problem(f.SessionID) != "" || i > 0 && !t.replaces(f.Tombstones[i-1]) {
			return ProblemTombstones
		}
	}
	last := f.Tombstones[len(f.Tombstones)-1]
	if versions[f.TurnID] == 0 || len(versions) < len(f.Tombstones) || last.ReplacedByTurnID != nil {
		return ProblemTombstones
	}
	return ""
}

func (t Tombstone) problem(session string) Problem {
	known := t.Status == "pending" || t.Status == "finalized" || t.Status == "replaced"
	if !known || t.RecordVersion < 1 || t.Place.Seq == 0 || t.Place.Seq > t.Position.Seq ||
		(t.Status == "replaced") != (t.ReplacedByTurnID != nil) {
		return ProblemTombstones
	}
	for i, at := range t.Extended {
		if at.Seq <= t.Position.Seq || i > 0 && at.Seq <= t.Extended[i-1].Seq {
			return ProblemTombstones
		}
	}
	return cmp.Or(badID(t.RequestID), badTurn(t.TurnID, session, t.RequestID))
}

// replaces reports whether both tombstones say that t is the version right after old.
func (t Tombstone) replaces(old Tombstone) bool {
	return t.ReplacesTurnID != nil && *t.ReplacesTurnID == old.TurnID &&
		old.ReplacedByTurnID != nil && *old.ReplacedByTurnID == t.TurnID &&
		t.RecordVersion == old.RecordVersion+1 && t.Place == old.Place
}
