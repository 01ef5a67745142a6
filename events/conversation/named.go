package conversation

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

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
