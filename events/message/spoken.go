package message

import (
	"bytes"
	"slices"
)

// An item of OpenAI's API is recorded as a chat message. What chat has no word for stands beside it, in the members
// item and item_ids, which no chat model takes; a message of an item that chat has no form for says nothing
// else (recorded.go).

// Spoken returns what prompts show of recorded messages: with calls that the model made together in one message, since
// vendors want each call's result right behind the message that calls. What only items say is left out, unless items is
// true: then the model's client decides which of it the model gets.
func Spoken(list []Message, items bool) []Message {
	out := list[:0]
	for _, m := range list {
		switch {
		case !m.ofItem():
		case m.wordless():
			if !items {
				continue
			}
		default:
			calls := m.onlyCalls()
			if m = m.bare(items); calls {
				if n := lastWithWords(out); n >= 0 && out[n].joins {
					m = out[n].and(m)
					out = slices.Delete(out, n, n+1)
				}
				m.joins = true
			}
		}
		out = append(out, m)
	}
	return out
}

// bare returns the message without the ids of its items, and without what only items say, unless items is true.
func (m Message) bare(items bool) Message {
	if items && len(m.stored.ItemIDs) == 0 {
		return m
	}
	members := map[string]any{"item_ids": nil}
	if !items {
		members["item"] = nil
	}
	return m.with(m.stored.Content, members)
}

// lastWithWords returns the index of the last message that is more than an item without a chat form, or -1.
func lastWithWords(list []Message) int {
	n := len(list) - 1
	for n >= 0 && list[n].onlyItem() {
		n--
	}
	return n
}

// onlyItem reports whether the message is an item that chat has no form for.
func (m Message) onlyItem() bool { return m.stored != nil && m.ofItem() && m.wordless() }

func (m Message) ofItem() bool {
	return bytes.HasPrefix(m.stored.Item, []byte("{")) || bytes.HasPrefix(m.stored.ItemIDs, []byte("["))
}

// wordless reports whether chat has no form for the message's item.
func (m Message) wordless() bool {
	return m.role == Assistant && m.silent() && len(m.everyCall()) == 0 && len(m.stored.parts) == 0
}

// onlyCalls reports whether the message makes calls and says nothing.
func (m Message) onlyCalls() bool {
	return m.role == Assistant && m.silent() && len(m.stored.ToolCalls) > 0
}

func (m Message) silent() bool {
	return IsNull(m.stored.Content)
}

// Empty reports whether the message has a content, and it says nothing.
func (m Message) Empty() bool {
	return m.Words() == "" && (m.stored == nil || !m.silent() && len(m.everyCall()) == 0)
}

// and returns the message with the calls of another one behind its own.
func (m Message) and(more Message) Message {
	out := m.with(m.stored.Content, map[string]any{"tool_calls": rawCalls(m, more)})
	out.joins = true
	return out
}
