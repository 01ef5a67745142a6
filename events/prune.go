package events

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// TurnPruned says: messages of the turn must never be shown again. It carries what is left of the turn, so that every
// earlier event of the turn can leave the log. The turn keeps its id, its place, its times and its status; the versions
// that it replaced become tombstones. Either half may be empty. The answer of a turn that is pending is empty.
//
// Tombstones holds every version, oldest first, and Session the session's mark, as in TurnRedacted; the last tombstone
// is the turn's own. Parts says for each position in that tombstone's Extended what it was. Brought holds the settings
// of the turn's earlier events that are to stay, oldest first; no view shows them.
type TurnPruned struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	PruneID   string    `json:"prune_id"`
	Question
	Answer
	Tombstones []Tombstone  `json:"tombstones"`
	Session    *SessionMark `json:"session"`
	Parts      []Part       `json:"parts,omitempty"`
	Brought    []Brought    `json:"brought,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	RedactedBy string       `json:"redacted_by,omitempty"`
}

// Part is what is left of an event that extended a turn: of that id, so many messages of a half. An event that pruned
// the turn has no half.
type Part struct {
	ID       string `json:"id"`
	Half     Half   `json:"half,omitempty"`
	Messages int    `json:"messages,omitempty"`
}

// Brought are the settings of an event that a prune has taken from the log: its sequence and its time. First is the
// sequence of the first event of its append, where that is known (Recorded.Append).
type Brought struct {
	Seq      uint64          `json:"seq"`
	First    uint64          `json:"first,omitempty"`
	Time     time.Time       `json:"time"`
	Settings json.RawMessage `json:"settings"`
}

// Type implements Fact.
func (f *TurnPruned) Type() string { return TypeTurnPruned }

// EventID implements Fact.
func (f *TurnPruned) EventID() string { return f.TurnID.String() + ".pruned." + f.PruneID }

// Subject implements Fact.
func (f *TurnPruned) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnPruned) names() Names {
	return Names{TurnID: f.TurnID, SessionID: f.SessionID, PruneID: f.PruneID}
}
func (f *TurnPruned) texts() Texts {
	if f.Pending() {
		return Texts{Question: &f.Question}
	}
	return Texts{Question: &f.Question, Answer: &f.Answer}
}
func (f *TurnPruned) withdraws() Withdrawal { return WithdrawsMessages }
func (f *TurnPruned) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), nilTurn(f.TurnID), problemIf(ValidExtensionID(f.PruneID) != nil, ProblemID),
		badMessages(f.QuestionMessages), badMessages(f.AnswerMessages), badObject(f.Metadata), f.problem())
}

// Pending reports whether the turn has no answer yet.
func (f *TurnPruned) Pending() bool {
	n := len(f.Tombstones)
	return n > 0 && f.Tombstones[n-1].Final == nil
}

func countMessages(raw []byte) int {
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list) // badMessages says whether it is a list
	return len(list)
}

func (f *TurnPruned) problem() Problem {
	n := len(f.Tombstones)
	if n == 0 || f.Session == nil || f.Tombstones[n-1].TurnID != f.TurnID || f.Tombstones[0].RecordVersion != 1 {
		return ProblemTombstones
	}
	redaction := TurnRedacted{TurnID: f.TurnID, SessionID: f.SessionID, Tombstones: f.Tombstones, Session: f.Session}
	own, said := f.Tombstones[n-1], f.AnswerNeutral != "" || HasMessages(f.AnswerMessages)
	if p := redaction.problem(); p != "" {
		return p
	}
	if (own.Status == "pending") != (own.Final == nil) || (own.Final == nil) != (own.FinalizedAt == nil) {
		return ProblemTombstones
	}
	if said && own.Final == nil || len(f.Parts) != len(own.Extended) {
		return ProblemPrune
	}
	for _, b := range f.Brought {
		if b.Seq == 0 || b.First > b.Seq || badObject(b.Settings) != "" {
			return ProblemPrune
		}
	}
	return f.problemOfParts(own.Final == nil)
}

// problemOfParts checks that the parts can be those of the turn.
func (f *TurnPruned) problemOfParts(pending bool) Problem {
	left := map[Half]int{HalfQuestion: countMessages(f.QuestionMessages), HalfAnswer: countMessages(f.AnswerMessages)}
	for _, p := range f.Parts {
		known := p.Half == HalfQuestion || p.Half == HalfAnswer && !pending || p.Half == "" && p.Messages == 0
		if left[p.Half] -= p.Messages; !known || p.Messages < 0 || left[p.Half] < 0 || ValidExtensionID(p.ID) != nil {
			return ProblemPrune
		}
	}
	return ""
}
