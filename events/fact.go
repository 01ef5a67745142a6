package events

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// The catalogue of event types (CONTRACT §5). A type is never renamed and never
// changes its meaning: a new shape is a new version and an upcast.
const (
	TypeTurnStarted    = "turnledger.turn.started.v1"
	TypeTurnFinalized  = "turnledger.turn.finalized.v1"
	TypeSessionLinked  = "turnledger.session.linked.v1"
	TypeTurnRedacted   = "turnledger.turn.redacted.v1"
	TypeTurnCorrected  = "turnledger.turn.corrected.v1"
	TypeSessionReset   = "turnledger.session.reset.v1"
	TypeSessionErased  = "turnledger.session.erased.v1"
	TypeLinkRefused    = "turnledger.session.link_refused.v1"
	TypeIdentityErased = "turnledger.identity.erased.v1"
	TypeErasureReceipt = "turnledger.erasure.receipt.v1"
)

// Fact is what an event states. EventID is computed from the statement alone and
// serves as ce-id and Nats-Msg-Id; Subject is where the fact belongs in the log.
type Fact interface {
	Type() string
	EventID() string
	Subject() string
}

// Question is the first half of a turn. Messages, where present, is a JSON array
// of chat messages in the OpenAI form, kept as it came; Metadata is a JSON object
// of allowed keys.
type Question struct {
	PipelineName       string          `json:"pipeline_name,omitempty"`
	Consultant         string          `json:"consultant,omitempty"`
	Repository         string          `json:"repository,omitempty"`
	TranslateChat      bool            `json:"translate_chat,omitempty"`
	QuestionNeutral    string          `json:"question_neutral"`
	QuestionTranslated string          `json:"question_translated,omitempty"`
	QuestionMessages   json.RawMessage `json:"question_messages,omitempty"`
	Metadata           json.RawMessage `json:"metadata,omitempty"`
}

// Answer is the second half of a turn; the forms are those of Question.
type Answer struct {
	AnswerNeutral              string          `json:"answer_neutral"`
	AnswerTranslated           string          `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool            `json:"answer_translated_is_fallback,omitempty"`
	AnswerMessages             json.RawMessage `json:"answer_messages,omitempty"`
}

// TurnStarted says: a request opened a turn with its question.
type TurnStarted struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	RequestID string    `json:"request_id"`
	Question
}

// TurnFinalized says: the turn has its answer. Metadata is laid over that of the start.
type TurnFinalized struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	Answer
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// SessionLinked says: the session belongs to an identity, from its beginning on.
type SessionLinked struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id"`
}

// Tombstone is what stays of a redacted turn: everything but its texts. Place is
// the position that orders the turn in its session, Position and Final are those
// of the events that opened and answered it, Status is what it was before.
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
}

// SessionMark is what a redaction found the session at. Activity that only the
// turn's own events knew of decided where a silence was: without the mark, a replay
// that lacks them would see a longer one and hide turns behind it.
type SessionMark struct {
	Boundary     Position  `json:"boundary"`
	CreatedAt    time.Time `json:"created_at"`
	LastActiveAt time.Time `json:"last_active_at"`
	// Counts of turns: all, and those after the boundary.
	Finalized      int `json:"finalized"`
	Pending        int `json:"pending"`
	ShownFinalized int `json:"shown_finalized"`
	ShownPending   int `json:"shown_pending"`
}

// TurnRedacted says: the turn, with all its versions, must never be shown again.
// Tombstones holds every version, oldest first, so that a replay gives the same
// tombstones when the turn's own events are physically gone (DESIGN §1); Session
// does the same for the session.
type TurnRedacted struct {
	TurnID     uuid.UUID    `json:"turn_id"`
	SessionID  string       `json:"session_id"`
	IdentityID string       `json:"identity_id,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	RedactedBy string       `json:"redacted_by,omitempty"`
	Tombstones []Tombstone  `json:"tombstones,omitempty"`
	Session    *SessionMark `json:"session,omitempty"`
}

// TurnCorrected says: a whole replacing turn, in the place of ReplacesTurnID.
type TurnCorrected struct {
	TurnID         uuid.UUID `json:"turn_id"`
	SessionID      string    `json:"session_id"`
	RequestID      string    `json:"request_id"`
	ReplacesTurnID uuid.UUID `json:"replaces_turn_id"`
	Question
	Answer
}

// SessionReset says: prompts and history start after it; nothing is deleted. After is
// the session's last position that the reset was decided on; it makes the event
// id of each reset its own.
type SessionReset struct {
	SessionID string   `json:"session_id"`
	After     Position `json:"after"`
	Reason    string   `json:"reason,omitempty"`
}

// SessionErased closes a session for ever and takes its turns out of every view.
// IdentityID is there where it goes with its identity.
type SessionErased struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id,omitempty"`
	ReceiptID  string `json:"receipt_id"`
	Reason     string `json:"reason,omitempty"`
	ErasedBy   string `json:"erased_by,omitempty"`
}

// LinkRefused says: somebody asked to link a session that belongs to another identity.
type LinkRefused struct {
	SessionID  string `json:"session_id"`
	IdentityID string `json:"identity_id"`
	SourceHash string `json:"source_hash,omitempty"`
}

// IdentityErased says: all sessions of an identity go, also those linked later.
type IdentityErased struct {
	IdentityID string `json:"identity_id"`
	ReceiptID  string `json:"receipt_id"`
	Reason     string `json:"reason,omitempty"`
	ErasedBy   string `json:"erased_by,omitempty"`
}

// Of is the erasure of one of the identity's sessions, under the same receipt.
func (f *IdentityErased) Of(sessionID string) *SessionErased {
	return &SessionErased{SessionID: sessionID, IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Reason: f.Reason, ErasedBy: f.ErasedBy}
}

// ErasureReceipt says: what an erasure has reached in one place of storage. It is of a
// session, or of an identity with so many Sessions, and stands behind the events that
// it is about.
type ErasureReceipt struct {
	IdentityID string `json:"identity_id,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	ReceiptID  string `json:"receipt_id"`
	Place      string `json:"place"`
	Erased     int    `json:"erased"`
	Sessions   int    `json:"sessions,omitempty"`
}

func (TurnStarted) Type() string    { return TypeTurnStarted }
func (TurnFinalized) Type() string  { return TypeTurnFinalized }
func (SessionLinked) Type() string  { return TypeSessionLinked }
func (TurnRedacted) Type() string   { return TypeTurnRedacted }
func (TurnCorrected) Type() string  { return TypeTurnCorrected }
func (SessionReset) Type() string   { return TypeSessionReset }
func (SessionErased) Type() string  { return TypeSessionErased }
func (LinkRefused) Type() string    { return TypeLinkRefused }
func (IdentityErased) Type() string { return TypeIdentityErased }
func (ErasureReceipt) Type() string { return TypeErasureReceipt }

func (f TurnStarted) EventID() string   { return f.TurnID.String() + ".started" }
func (f TurnFinalized) EventID() string { return f.TurnID.String() + ".finalized" }
func (f SessionLinked) EventID() string {
	return pairID(f.SessionID, f.IdentityID).String() + ".linked"
}
func (f TurnRedacted) EventID() string  { return f.TurnID.String() + ".redacted" }
func (f TurnCorrected) EventID() string { return f.TurnID.String() + ".corrected" }
func (f SessionReset) EventID() string {
	return pairID(f.SessionID, strconv.FormatUint(f.After.Seq, 10)).String() + ".reset"
}
func (f SessionErased) EventID() string { return pairID(f.SessionID, f.ReceiptID).String() + ".erased" }
func (f LinkRefused) EventID() string {
	return pairID(f.SessionID, f.IdentityID).String() + ".link_refused"
}
func (f IdentityErased) EventID() string {
	return pairID(f.IdentityID, f.ReceiptID).String() + ".identity_erased"
}
func (f ErasureReceipt) EventID() string {
	if f.SessionID != "" {
		// One receipt of an identity is that of many sessions.
		return pairID(pairID(f.SessionID, f.ReceiptID).String(), f.Place).String() + ".receipt"
	}
	return pairID(f.ReceiptID, f.Place).String() + ".receipt"
}

func (f TurnStarted) Subject() string    { return SessionSubject(f.SessionID) }
func (f TurnFinalized) Subject() string  { return SessionSubject(f.SessionID) }
func (f SessionLinked) Subject() string  { return SessionSubject(f.SessionID) }
func (f TurnRedacted) Subject() string   { return SessionSubject(f.SessionID) }
func (f TurnCorrected) Subject() string  { return SessionSubject(f.SessionID) }
func (f SessionReset) Subject() string   { return SessionSubject(f.SessionID) }
func (f SessionErased) Subject() string  { return SessionSubject(f.SessionID) }
func (f LinkRefused) Subject() string    { return SessionSubject(f.SessionID) }
func (f IdentityErased) Subject() string { return IdentitySubject(f.IdentityID) }
func (f ErasureReceipt) Subject() string {
	if f.SessionID != "" {
		return SessionSubject(f.SessionID)
	}
	return IdentitySubject(f.IdentityID)
}
