package recent

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/klauspost/compress/s2"

	"github.com/turnledger/turnledger/events/conversation"
)

// Pack returns what a view holds of a session as one compressed text. It takes less memory than the state, most of all
// where the turns are few or alike.
func Pack(s *conversation.State) string {
	whole := byte(0)
	if s.Whole {
		whole = 1
	}
	b := append(binary.AppendUvarint(nil, s.Applied), whole)
	b = appendText(b, json.RawMessage(AppendHead(nil, s.Head())))
	for _, t := range s.Turns {
		b = appendText(b, json.RawMessage(Record(t)))
	}
	return string(s2.Encode(nil, b))
}

// Unpack returns the state that Pack was given, as far as a view shows it: like a state from Redis, it does not tell
// the repeat of an event from another event.
func Unpack(sessionID string, rules conversation.Rules, packed string) (*conversation.State, error) {
	b, err := s2.Decode(nil, []byte(packed))
	if err != nil {
		return nil, err
	}
	r := &reader{unread: string(b)}
	s := conversation.New(sessionID, rules)
	s.Applied, s.Whole = r.uint(), r.byte() == 1
	h, err := ReadHead(r.text())
	if err != nil {
		return nil, err
	}
	s.Adopt(h)
	for r.unread != "" {
		t, err := ReadTurn(r.text())
		if err != nil {
			return nil, err
		}
		s.Turns = append(s.Turns, t)
	}
	if r.bad {
		return nil, errors.New("a packed session is cut")
	}
	return s, nil
}
