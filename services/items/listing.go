package items

import (
	"encoding/json"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// OfHalf returns the items of a half of a turn, with their ids. first is the position of the half's first event. A half
// without messages is one message of its role, with the neutral text; a half without that has no items.
func (m Minter) OfHalf(
	sessionID string, first events.Position, answer bool, messages json.RawMessage, neutral string,
) []Item {
	all := list(messages)
	if len(all) == 0 && neutral != "" {
		role := roleUser
		if answer {
			role = roleAssistant
		}
		all = []json.RawMessage{encode(Item{"role": quote(role), "content": quote(neutral)})}
	}
	return m.OfMessages(sessionID, Address{Position: first, Answer: answer}, all)
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
		at := events.Position{Partition: partition, Seq: t.Started}
		out = m.OfHalf(sessionID, at, false, q.QuestionMessages, q.QuestionNeutral)
	}
	if a := t.Answer; a != nil {
		at := events.Position{Partition: partition, Seq: t.Final}
		out = append(out, m.OfHalf(sessionID, at, true, a.AnswerMessages, a.AnswerNeutral)...)
	}
	return out
}

// Kept returns the messages of a half of a turn that are left when one of its items goes, each with the id that its
// item has: an id that comes from a place would change with the place. gone reports whether the half had the item.
func Kept(items []Item, id string) (messages []json.RawMessage, gone bool) {
	messages = []json.RawMessage{}
	for _, i := range items {
		if i.ID() == id {
			gone = true
			continue
		}
		messages = append(messages, Message(i))
	}
	return messages, gone
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
