package events

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/google/uuid"
)

// Problem says in one word why an event states no fact; "" if it states one. A problem never holds
// any of the event's content.
type Problem = string

// The problems that an event can have by itself, whatever its session holds.
const (
	ProblemUnknownType   Problem = "unknown_type"
	ProblemNoCloudEvent  Problem = "not_a_cloudevent"
	ProblemWrongSubject  Problem = "wrong_subject"
	ProblemWrongEventID  Problem = "wrong_event_id"
	ProblemWrongTurnID   Problem = "wrong_turn_id"
	ProblemBody          Problem = "malformed_body"
	ProblemID            Problem = "malformed_id"
	ProblemMessages      Problem = "malformed_messages"
	ProblemMetadata      Problem = "malformed_metadata"
	ProblemTombstones    Problem = "malformed_tombstones"
	ProblemReceipt       Problem = "malformed_receipt"
	ProblemDescription   Problem = "malformed_description"
	ProblemSegments      Problem = "malformed_segments"
	ProblemSummary       Problem = "malformed_summary"
	ProblemExtension     Problem = "malformed_extension"
	ProblemPrune         Problem = "malformed_prune"
	ProblemEmptyQuestion Problem = "empty_question"
	ProblemEmptyAnswer   Problem = "empty_answer"
)

// badMessages and badObject check parts of a body that was read as JSON, so a part that begins like an object is an
// object.
func badMessages(raw json.RawMessage) Problem {
	if len(raw) == 0 {
		return ""
	}
	var list []json.RawMessage
	noObject := func(m json.RawMessage) bool { return m[0] != '{' }
	bad := TooDeep(raw) || json.Unmarshal(raw, &list) != nil || slices.ContainsFunc(list, noObject)
	return problemIf(bad, ProblemMessages)
}

func badObject(raw json.RawMessage) Problem {
	return problemIf(TooDeep(raw) || len(raw) > 0 && raw[0] != '{' && raw[0] != 'n', ProblemMetadata)
}

// MaxDepth is how deep messages and metadata may nest. It is far below the limits of all readers.
const MaxDepth = 500

// TooDeep reports whether valid JSON nests deeper than MaxDepth.
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

// HasMessages reports whether a JSON array of messages holds at least one.
func HasMessages(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) > 0
}

func badID(id string) Problem { return problemIf(ValidID(id) != nil, ProblemID) }

func badTurn(id uuid.UUID, session, request string) Problem {
	return problemIf(id != TurnID(session, request), ProblemWrongTurnID)
}

func nilTurn(id uuid.UUID) Problem { return problemIf(id == uuid.Nil, ProblemWrongTurnID) }

func problemIf(bad bool, p Problem) Problem {
	if bad {
		return p
	}
	return ""
}
