package events

import (
	"encoding/json"

	"github.com/google/uuid"
)

// Fact is what an event states: one of the types of this package, by pointer. Its methods are the event's row in the
// catalogue. The interface is sealed, and a linter checks that each type switch over a Fact has a case for each event.
// An event that states no fact has a nil Fact.
//
//sumtype:decl
type Fact interface {
	// Type returns the type under which the log keeps the event (ce-type).
	Type() string
	// EventID returns the id that serves as ce-id and Nats-Msg-Id. It is computed from the fact alone.
	EventID() string
	// Subject returns the subject on which the event stands in the log.
	Subject() string
	// names returns the ids by which the event names a turn; the zero Names if it names none.
	// When the turn is redacted, the event is erased with it, and only these ids may be shown.
	names() Names
	// texts returns the texts that the event brings to its turn; the zero Texts if it brings none.
	texts() Texts
	// withdraws returns what the event withdraws from all readers for ever. It depends only on the type.
	withdraws() Withdrawal
	// check checks the fact, which was read from body, by the rules that need no session.
	check(body []byte) Problem
}

// Names are the ids by which an event names a turn.
type Names struct {
	TurnID    uuid.UUID `json:"turn_id,omitzero"`
	SessionID string    `json:"session_id,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	// ReplacesTurnID is the second turn that a correction names.
	ReplacesTurnID uuid.UUID `json:"replaces_turn_id,omitzero"`
	ExtensionID    string    `json:"extension_id,omitempty"`
	PruneID        string    `json:"prune_id,omitempty"`
}

// Texts are the parts of a turn that an event brings. They point into the fact, which never changes.
type Texts struct {
	Question *Question
	Answer   *Answer
	// Extension is appended to a half that the turn has.
	Extension *Extension
	// Metadata comes with Answer, and overrides members of the question's metadata, or with Extension, and overrides
	// those of its half.
	Metadata json.RawMessage
	// Settings are what a model was asked for, or said of its answer. No view shows them.
	Settings json.RawMessage
}

// Withdrawal says what an event withdraws from all readers for ever.
type Withdrawal uint8

// The withdrawals. WithdrawsDescription withdraws the descriptions of the session that it replaces, WithdrawsVersion
// the version of a turn that a correction replaces, WithdrawsMessages messages of a turn, WithdrawsTurn a turn with all
// its versions, WithdrawsSession a session, and WithdrawsIdentity all sessions of an identity, also those that are
// linked to it later.
const (
	WithdrawsNothing Withdrawal = iota
	WithdrawsDescription
	WithdrawsVersion
	WithdrawsMessages
	WithdrawsTurn
	WithdrawsSession
	WithdrawsIdentity
)

// WithdrawalOf returns what events of a type withdraw. An unknown type withdraws nothing.
func WithdrawalOf(typ string) Withdrawal {
	if r, known := catalogue[typ]; known {
		return r.zero.withdraws()
	}
	return WithdrawsNothing
}

// NamesOf returns the ids by which a fact names a turn; the zero Names for a nil fact.
func NamesOf(f Fact) Names {
	if f == nil {
		return Names{}
	}
	return f.names()
}

// TextsOf returns the texts that a fact brings to its turn; the zero Texts for a nil fact.
func TextsOf(f Fact) Texts {
	if f == nil {
		return Texts{}
	}
	return f.texts()
}

// Remains returns what may be shown of a fact when a turn that it names is redacted: the ids alone. It reports false
// for a fact that stays whole: a fact that names no turn, and the redaction itself.
func Remains(f Fact) (Names, bool) {
	n := f.names()
	return n, n.TurnID != uuid.Nil && f.withdraws() < WithdrawsTurn
}
