package items

import (
	"encoding/json"
	"maps"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// OfHalf returns the items of a half of a turn, with their ids. first is the position of the half's first event. A half
// without messages is one message of its role, with the neutral text; a half without that has no items.
func (m Minter) OfHalf(
	sessionID string, first events.Position, half events.Half, messages json.RawMessage, neutral string,
) []Item {
	all := list(messages)
	if len(all) == 0 && neutral != "" {
		role := roleUser
		if half == events.HalfAnswer {
			role = roleAssistant
		}
		all = []json.RawMessage{encode(Item{"role": quote(role), "content": quote(neutral)})}
	}
	return m.OfMessages(sessionID, Address{Position: first, Answer: half == events.HalfAnswer}, all)
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
func (m Minter) OfTurn(sessionID string, partition int, t *conversation.Turn) (out []Item) {
	if t.Status != conversation.Pending && t.Status != conversation.Finalized {
		return nil
	}
	if q := t.Question; q != nil {
		at := events.Position{Partition: partition, Seq: t.Begun(events.HalfQuestion)}
		out = m.OfHalf(sessionID, at, events.HalfQuestion, q.QuestionMessages, q.QuestionNeutral)
	}
	if a := t.Answer; a != nil {
		at := events.Position{Partition: partition, Seq: t.Begun(events.HalfAnswer)}
		out = append(out, m.OfHalf(sessionID, at, events.HalfAnswer, a.AnswerMessages, a.AnswerNeutral)...)
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
	out := conversation.AddedMessage{JSON: Message(i), Asks: i.Asks(), ByUser: i.ByUser()}
	if out.ByUser || i.ByAssistant() {
		out.Words = words(out.JSON)
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
