package items

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// messagesOf returns the messages of a half of a turn. A half without messages is one message of its role, with the
// neutral text; a half without that has none.
func messagesOf(half events.Half, messages json.RawMessage, neutral string) []json.RawMessage {
	all := list(messages)
	if len(all) == 0 && neutral != "" {
		role := roleUser
		if half == events.HalfAnswer {
			role = roleAssistant
		}
		all = []json.RawMessage{encode(Item{"role": quote(role), "content": quote(neutral)})}
	}
	return all
}

// OfMessages returns the items of messages that stand side by side in a half of a turn, with their ids. from is the
// address of the first.
func (m Minter) OfMessages(sessionID string, from Address, messages []json.RawMessage) (out []Item) {
	for _, raw := range messages {
		for sub, i := range Of(raw) {
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
func (m Minter) OfTurn(sessionID string, partition int, t *conversation.Turn) []Item {
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
func (m Minter) Walk(sessionID string, partition int, t *conversation.Turn, way Way) iter.Seq[Item] {
	return func(yield func(Item) bool) {
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

func halvesOf(partition int, t *conversation.Turn, skipped int) (out []halfOfTurn) {
	if t.Status != conversation.Pending && t.Status != conversation.Finalized {
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

// idsMember is the member of a message that holds the ids of its items, where these come from another place.
const idsMember = "item_ids"

// Kept returns what is left of a recorded message when the item of an id goes: nil, if it was the only one. The others
// get their ids into the message, since an id that comes from a place would change with the place. at is the message's
// address.
func (m Minter) Kept(sessionID string, at Address, message json.RawMessage, gone string) json.RawMessage {
	all := m.OfMessages(sessionID, at, []json.RawMessage{message})
	var left, ids []json.RawMessage
	for _, i := range all {
		if i.ID() != gone {
			left, ids = append(left, i.JSON()), append(ids, i["id"])
		}
	}
	if len(left) == 0 {
		return nil
	}
	out := object(message)
	if len(left) < len(all) {
		out = reduced(out, left)
	}
	out[idsMember] = encode(ids)
	return encode(out)
}

// reduced returns a message that says several items, with those that are left.
func reduced(message Item, left []json.RawMessage) Item {
	out := maps.Clone(message)
	for _, name := range []string{"content", "refusal", "audio", "translated", "tool_calls", "function_call"} {
		delete(out, name)
	}
	out["content"] = null
	calls := []json.RawMessage{}
	for _, raw := range left {
		i := object(raw)
		if i.Type() == typeMessage {
			out["content"] = chatMessage(i)["content"]
			if t := message["translated"]; t != nil {
				out["translated"] = t
			}
			continue
		}
		calls = append(calls, list(chatMessage(i)["tool_calls"])...)
	}
	if len(calls) > 0 {
		out["tool_calls"] = encode(calls)
	}
	return out
}

// Added returns an item as a message that a session can take (conversation.AddMessages).
func Added(i Item) conversation.AddedMessage {
	all := whole(i)
	out := conversation.AddedMessage{JSON: conversation.WithoutImages(all), Asks: i.Asks(), ByUser: i.ByUser()}
	switch {
	case !out.ByUser && !i.ByAssistant():
	case bytes.Equal(out.JSON, all):
		out.Words = i.Words()
	default:
		out.Words = words(out.JSON)
	}
	switch {
	case i.IsCall():
		out.Makes = i.CallID()
	case i.IsOutput():
		out.Takes = i.CallID()
	}
	return out
}

// words returns the text of a message as it is kept, so that it has no base64 data.
func words(message json.RawMessage) string {
	all := Of(message)
	if len(all) == 0 {
		return ""
	}
	return all[0].Words()
}
