package conversation

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Named returns the turns that an event names, uuid.Nil for none. An event that states no
// fact may hold a turn's text all the same: it names what its id and its body say.
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
	_ = json.Unmarshal(e.Body, &body) // what is no object names nothing
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

// Elsewhere gives the session that an event without a fact names in its body, where its
// subject is not that one's; "" otherwise.
func Elsewhere(e events.Recorded) string {
	var body struct {
		SessionID string `json:"session_id"`
	}
	if e.Fact != nil || json.Unmarshal(e.Body, &body) != nil || body.SessionID == e.SessionID || events.ValidID(body.SessionID) != nil {
		return ""
	}
	return body.SessionID
}

// NamesGone tells whether an event is of an erased session, or names a redacted turn.
func (s *State) NamesGone(e events.Recorded) bool { return s.Erased != 0 || s.namesGone(e) }

// namesGone tells whether an event without a fact names a redacted turn.
func (s *State) namesGone(e events.Recorded) bool {
	turn, replaces := named(e)
	for _, id := range []uuid.UUID{turn, replaces} {
		if t := s.Turn(id); t != nil && t.Gone != 0 {
			return true
		}
	}
	return false
}
