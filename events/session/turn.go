package session

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Status is the status of a turn.
type Status uint8

// A turn is pending until it has an answer, replaced after a correction, and redacted for ever.
const (
	Pending Status = iota
	Finalized
	Redacted
	Replaced
)

var statusNames = [...]string{"pending", "finalized", "redacted", "replaced"}

func (s Status) String() string { return statusNames[s] }

// Turn is one question and its answer. Sequences are of the session's partition.
//
// Question and Answer point into the facts and are never changed in place; both are nil in a slim state and in a
// tombstone. An extension makes new ones. The messages of an answer that an extension made are the exception: until the
// state is cloned, its next extension appends to them in place. So whoever keeps the texts of a state that is folded
// further keeps those of a clone.
type Turn struct {
	ID        uuid.UUID
	RequestID string
	Status    Status
	// StatusBefore is the status before a redaction.
	StatusBefore Status
	// Asked: the event that opened the question, or one that extended it, asked a model (it has settings).
	Asked   bool
	Version int
	// Place orders the turn in its session: the sequence of its start, or the place of the turn that it replaces.
	Place uint64
	// Started, Final and Redacted are the sequences of the events that opened, answered and redacted it; 0 if there is
	// none. A correction opens and answers at once.
	Started, Final, Redacted uint64

	CreatedAt, FinalizedAt, DeletedAt time.Time
	Replaces, ReplacedBy              uuid.UUID
	TranslateChat, fromTombstone      bool
	// LastMessages counts those of the half that came last, up to 65,535, while the turn may go on. It stands where the
	// struct has room.
	LastMessages uint16

	Question *events.Question
	Answer   *events.Answer
	// AnswerMetadata overrides members of the question's metadata.
	AnswerMetadata json.RawMessage

	startDigest, finalDigest uint64
	// extended is the last extension.
	extended *extension
}

// Corrects reports whether a correction made the turn.
func (t *Turn) Corrects() bool { return t.Replaces != uuid.Nil }

// Metadata returns the metadata of the whole turn, in which the answer's members override the question's. It is a JSON
// object or nil.
func (t *Turn) Metadata() json.RawMessage {
	var base json.RawMessage
	if t.Question != nil {
		base = t.Question.Metadata
	}
	return MergeMetadata(base, t.AnswerMetadata)
}

// LeastMessages returns how many messages a pending or finalized turn has, as far as a state without texts knows: those
// of the half that came last, and one of a question that has an answer.
func (t *Turn) LeastMessages() int {
	n := int(t.LastMessages)
	if t.Status == Finalized && t.PrunedAt() == 0 {
		n++
	}
	return max(n, 1)
}

// MergeMetadata returns the members of two JSON objects; those of over win.
func MergeMetadata(base, over json.RawMessage) json.RawMessage {
	if len(over) == 0 {
		return base
	}
	if len(base) == 0 {
		return over
	}
	merged := map[string]json.RawMessage{}
	if json.Unmarshal(base, &merged) != nil || json.Unmarshal(over, &merged) != nil {
		return base
	}
	return events.Raw(merged)
}
