package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/uuid"
)

// decodeFact reads the body of an event type, upcast to the newest shape, and
// holds it against the rules that need no session. The problem is "" or a word.
func decodeFact(typ string, body []byte) (Fact, string) {
	upcast, ok := catalogue[typ]
	if !ok {
		return nil, "unknown_type"
	}
	fact, err := upcast(body)
	if err != nil {
		return nil, "malformed_body"
	}
	if p := firstOf(check(fact), badReceipt(fact, body)); p != "" {
		return nil, p
	}
	return fact, ""
}

// catalogue maps each event type, past ones included, to the reader that gives
// the newest shape of its fact.
var catalogue = map[string]func([]byte) (Fact, error){
	TypeTurnStarted:    read[TurnStarted],
	TypeTurnFinalized:  read[TurnFinalized],
	TypeSessionLinked:  read[SessionLinked],
	TypeTurnRedacted:   read[TurnRedacted],
	TypeTurnCorrected:  read[TurnCorrected],
	TypeSessionReset:   read[SessionReset],
	TypeSessionErased:  read[SessionErased],
	TypeLinkRefused:    read[LinkRefused],
	TypeIdentityErased: read[IdentityErased],
	TypeErasureReceipt: read[ErasureReceipt],
}

// Types gives the event types of the catalogue, past ones included, in order.
func Types() []string { return slices.Sorted(maps.Keys(catalogue)) }

// asBefore is what encoding/json takes: the log keeps messages and metadata as their
// senders wrote them, a name twice included.
// An id has one form only, that of the schemas.
var asBefore = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsonv2.WithUnmarshalers(jsonv2.UnmarshalFunc(readUUID)))

// uuidLength is that of the form with hyphens, which is the only one of 36 characters.
const uuidLength = 36

func readUUID(raw []byte, id *uuid.UUID) error {
	if len(raw) != uuidLength+2 {
		return errors.New("not a UUID")
	}
	text := raw[1 : len(raw)-1]
	if bytes.ContainsAny(text, "ABCDEF") {
		return errors.New("not a UUID in lower case")
	}
	return id.UnmarshalText(text)
}

func read[F Fact](body []byte) (Fact, error) {
	f := new(F)
	if err := jsonv2.Unmarshal(body, f, asBefore); err != nil {
		return nil, err
	}
	return any(f).(Fact), nil
}

// check holds a fact against the rules of CONTRACT §2 and §5 that need no session.
func check(f Fact) string {
	switch f := f.(type) {
	case *TurnStarted:
		return firstOf(badID(f.SessionID), badID(f.RequestID), badTurn(f.TurnID, f.SessionID, f.RequestID), f.problem())
	case *TurnFinalized:
		return firstOf(badID(f.SessionID), nilTurn(f.TurnID), f.problem(), badObject(f.Metadata))
	case *SessionLinked:
		return firstOf(badID(f.SessionID), badID(f.IdentityID))
	case *TurnRedacted:
		return firstOf(badID(f.SessionID), nilTurn(f.TurnID), f.problem())
	case *TurnCorrected:
		return firstOf(badID(f.SessionID), badID(f.RequestID), badTurn(f.TurnID, f.SessionID, f.RequestID),
			nilTurn(f.ReplacesTurnID), f.Question.problem(), f.Answer.problem())
	case *SessionReset:
		return badID(f.SessionID)
	case *SessionErased:
		if f.IdentityID == "" {
			return firstOf(badID(f.SessionID), badID(f.ReceiptID))
		}
		return firstOf(badID(f.SessionID), badID(f.IdentityID), badID(f.ReceiptID))
	case *LinkRefused:
		return firstOf(badID(f.SessionID), badID(f.IdentityID))
	case *IdentityErased:
		return firstOf(badID(f.IdentityID), badID(f.ReceiptID))
	case *ErasureReceipt:
		if f.SessionID != "" && f.IdentityID == "" {
			return firstOf(badID(f.SessionID), badID(f.ReceiptID))
		}
		return firstOf(badID(f.IdentityID), badID(f.ReceiptID))
	default:
		return "unknown_type"
	}
}

func (q Question) problem() string {
	if q.QuestionNeutral == "" && !HasMessages(q.QuestionMessages) {
		return "empty_question"
	}
	return firstOf(badMessages(q.QuestionMessages), badObject(q.Metadata))
}

func (a Answer) problem() string {
	if a.AnswerNeutral == "" && !HasMessages(a.AnswerMessages) {
		return "empty_answer"
	}
	return badMessages(a.AnswerMessages)
}

// problem holds the tombstones against what a redaction states: one version
// replacing the other, in one place, TurnID among them. A chain that is none would
// bring back turns that the redaction does not cover.
func (f TurnRedacted) problem() string {
	if m := f.Session; m != nil && min(m.Finalized, m.Pending, m.ShownFinalized, m.ShownPending) < 0 {
		return malformedTombstones
	}
	if len(f.Tombstones) == 0 {
		return ""
	}
	versions := map[uuid.UUID]int{}
	for i, t := range f.Tombstones {
		versions[t.TurnID]++
		if t.problem(f.SessionID) != "" || i > 0 && !t.replaces(f.Tombstones[i-1]) {
			return malformedTombstones
		}
	}
	last := f.Tombstones[len(f.Tombstones)-1]
	if versions[f.TurnID] == 0 || len(versions) < len(f.Tombstones) || last.ReplacedByTurnID != nil {
		return malformedTombstones
	}
	return ""
}

const malformedTombstones = "malformed_tombstones"

func (t Tombstone) problem(session string) string {
	known := t.Status == "pending" || t.Status == "finalized" || t.Status == "replaced"
	if !known || t.RecordVersion < 1 || t.Place.Seq == 0 || t.Place.Seq > t.Position.Seq ||
		(t.Status == "replaced") != (t.ReplacedByTurnID != nil) {
		return malformedTombstones
	}
	return firstOf(badID(t.RequestID), badTurn(t.TurnID, session, t.RequestID))
}

func (t Tombstone) replaces(old Tombstone) bool {
	return t.ReplacesTurnID != nil && *t.ReplacesTurnID == old.TurnID && old.ReplacedByTurnID != nil && *old.ReplacedByTurnID == t.TurnID &&
		t.RecordVersion == old.RecordVersion+1 && t.Place == old.Place
}

// badMessages and badObject are given parts of a body that was read as JSON: what
// begins as an object is one.
func badMessages(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var list []json.RawMessage
	if TooDeep(raw) || json.Unmarshal(raw, &list) != nil {
		return "malformed_messages"
	}
	for _, m := range list {
		if m[0] != '{' {
			return "malformed_messages"
		}
	}
	return ""
}

// MaxDepth is how deep messages and metadata may nest: no reader's limit is near.
const MaxDepth = 500

// TooDeep tells whether valid JSON nests deeper than MaxDepth.
func TooDeep(raw []byte) bool {
	if bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) <= MaxDepth {
		return false
	}
	depth, text := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			text = !text
		case text && c == '\\':
			i++
		case text:
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

func badObject(raw json.RawMessage) string {
	if TooDeep(raw) {
		return "malformed_metadata"
	}
	if len(raw) > 0 && raw[0] != '{' && raw[0] != 'n' {
		return "malformed_metadata"
	}
	return ""
}

// HasMessages tells whether a JSON array of messages holds at least one.
func HasMessages(raw json.RawMessage) bool {
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) > 0
}

// badReceipt holds a session's receipt against its exact form. It alone may come after
// the session was erased and stay, so that no text may ride on it.
func badReceipt(f Fact, body []byte) string {
	r, ok := f.(*ErasureReceipt)
	if !ok || r.SessionID == "" {
		return ""
	}
	exact, err := Encode(r, time.Time{})
	if err != nil || badID(r.SessionID) != "" || !placeName.MatchString(r.Place) || !bytes.Equal(exact.Body, body) {
		return "malformed_receipt"
	}
	return ""
}

var placeName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

func badID(id string) string {
	if ValidID(id) != nil {
		return "malformed_id"
	}
	return ""
}

func badTurn(id uuid.UUID, session, request string) string {
	if id != TurnID(session, request) {
		return "wrong_turn_id"
	}
	return ""
}

func nilTurn(id uuid.UUID) string {
	if id == uuid.Nil {
		return "wrong_turn_id"
	}
	return ""
}

func firstOf(problems ...string) string {
	for _, p := range problems {
		if p != "" {
			return p
		}
	}
	return ""
}
