package items

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// messagesOf returns the messages of a half of a turn. A half without messages is one message of its role, with the
// neutral text; a half without that has none.
func messagesOf(half events.Half, messages json.RawMessage, neutral string) []json.RawMessage {
	var all []json.RawMessage
	_ = json.Unmarshal(messages, &all) // a body that was decoded holds a list
	if len(all) == 0 && neutral != "" {
		role := message.User
		if half == events.HalfAnswer {
			role = message.Assistant
		}
		all = []json.RawMessage{message.New(role, neutral).JSON()}
	}
	return all
}

// OfMessages returns the items of messages that stand side by side in a half of a turn, with their ids. from is the
// address of the first.
func (m Minter) OfMessages(sessionID string, from Address, messages []json.RawMessage) (out []message.Item) {
	for _, raw := range messages {
		for sub, i := range message.Items(raw) {
			if from.Sub = sub; i.ID() == "" {
				i = i.With("id", m.Item(i.Type(), sessionID, from))
			}
			out = append(out, i)
		}
		from.Message++
	}
	return out
}

// OfTurn returns the items of a turn, with their ids: those of the question, then those of the answer. A turn that is
// redacted or replaced has none. partition is that of the turn's session.
func (m Minter) OfTurn(sessionID string, partition int, t *session.Turn) []message.Item {
	return slices.Collect(m.Walk(sessionID, partition, t, Way{}))
}

// Way says how the items of a turn are walked: from the first to the last, or with Back the other way. If the item of
// From is one of the turn's, the walk begins with the message which that item is of. Skipped is how many messages the
// answer has before the first that the turn holds.
type Way struct {
	From    Address
	Back    bool
	Skipped int
}

// Walk yields the items of a turn as OfTurn returns them. An item that the walk does not reach costs nothing.
func (m Minter) Walk(sessionID string, partition int, t *session.Turn, way Way) iter.Seq[message.Item] {
	return func(yield func(message.Item) bool) {
		at, back, halves := way.From, way.Back, halvesOf(partition, t, way.Skipped)
		if back {
			slices.Reverse(halves)
		}
		is := func(h halfOfTurn) bool { return h.at.Position == at.Position && h.at.Answer == at.Answer }
		first := slices.IndexFunc(halves, is)
		for _, h := range halves[max(first, 0):] {
			n, step := 0, 1
			if back {
				n, step = len(h.messages)-1, -1
			}
			skipped := h.at.Message
			if from := max(at.Message-skipped, 0); first >= 0 && is(h) && from < len(h.messages) {
				n = from // else the id was made before the answer was there, and its number is no place
			}
			for ; n >= 0 && n < len(h.messages); n += step {
				h.at.Message = skipped + n
				all := m.OfMessages(sessionID, h.at, h.messages[n:n+1])
				if back {
					slices.Reverse(all)
				}
				for _, i := range all {
					if !yield(i) {
						return
					}
				}
			}
		}
	}
}

// halfOfTurn is the messages of a half, with the address of the half's begin.
type halfOfTurn struct {
	at       Address
	messages []json.RawMessage
}

func halvesOf(partition int, t *session.Turn, skipped int) (out []halfOfTurn) {
	if t.Status != session.Pending && t.Status != session.Finalized {
		return nil
	}
	add := func(half events.Half, messages json.RawMessage, neutral string) {
		at := Address{Answer: half == events.HalfAnswer}
		at.Position = events.Position{Partition: partition, Seq: t.Begun(half)}
		if at.Answer {
			at.Message = skipped
		}
		out = append(out, halfOfTurn{at, messagesOf(half, messages, neutral)})
	}
	if q := t.Question; q != nil {
		add(events.HalfQuestion, q.QuestionMessages, q.QuestionNeutral)
	}
	if a := t.Answer; a != nil {
		add(events.HalfAnswer, a.AnswerMessages, a.AnswerNeutral)
	}
	return out
}

// Kept returns what is left of a recorded message when the item of an id goes: nil, if it was the only one. The others
// get their ids into the message, since an id that comes from a place would change with the place. at is the message's
// address.
func (m Minter) Kept(sessionID string, at Address, recorded json.RawMessage, gone string) json.RawMessage {
	all := m.OfMessages(sessionID, at, []json.RawMessage{recorded})
	left := slices.DeleteFunc(slices.Clone(all), func(i message.Item) bool { return i.ID() == gone })
	if len(left) == 0 {
		return nil
	}
	return message.Of(recorded, left, len(left) == len(all))
}

// AllAdded returns items as messages that a session can take.
func AllAdded(all []message.Item) []decide.AddedMessage {
	out := make([]decide.AddedMessage, len(all))
	for n, i := range all {
		out[n] = Added(i)
	}
	return out
}

// Added returns an item as a message that a session can take (decide.AddMessages).
func Added(i message.Item) decide.AddedMessage {
	all := i.Whole()
	out := decide.AddedMessage{JSON: message.WithoutImages(all), Asks: i.Asks(), ByUser: i.ByUser()}
	switch {
	case !out.ByUser && !i.ByAssistant():
	case bytes.Equal(out.JSON, all):
		out.Words = i.Words()
	default: // what is kept, which has no base64 data
		out.Words = strings.Join(message.Parse(out.JSON).Texts(), "\n\n")
	}
	switch {
	case i.IsCall():
		out.Makes = i.CallID()
	case i.IsOutput():
		out.Takes = i.CallID()
	}
	return out
}
