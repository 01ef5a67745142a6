package contextbuilder

import (
	"bytes"
	"encoding/json"
)

// An item of OpenAI's API is recorded as a chat message. What chat has no word for stands beside it, in the members
// item and item_ids, which no chat model takes; a message of an item that chat has no form for says nothing
// else (services/items).

// spoken returns what prompts show of recorded messages: without what only items say, and with calls that the model
// made together in one message, since vendors want each call's result right behind the message that calls.
func spoken(list []Message) []Message {
	out := list[:0]
	for _, m := range list {
		switch {
		case !m.ofItem():
		case m.wordless():
			continue
		default:
			calls := m.onlyCalls()
			m = m.with(m.stored.Content, map[string]any{"item": nil, "item_ids": nil})
			if n := len(out) - 1; calls && n >= 0 && out[n].joins {
				out[n] = out[n].and(m)
				continue
			}
			m.joins = calls
		}
		out = append(out, m)
	}
	return out
}

func (m Message) ofItem() bool {
	return bytes.HasPrefix(m.stored.Item, []byte("{")) || bytes.HasPrefix(m.stored.ItemIDs, []byte("["))
}

// wordless reports whether chat has no form for the message's item.
func (m Message) wordless() bool {
	return m.role == roleAssistant && m.silent() && len(m.everyCall()) == 0 && len(m.stored.parts) == 0
}

// onlyCalls reports whether the message makes calls and says nothing.
func (m Message) onlyCalls() bool {
	return m.role == roleAssistant && m.silent() && len(m.stored.ToolCalls) > 0
}

func (m Message) silent() bool {
	return len(m.stored.Content) == 0 || string(m.stored.Content) == "null"
}

// and returns the message with the calls of another one behind its own.
func (m Message) and(more Message) Message {
	var calls []json.RawMessage
	for _, one := range []Message{m, more} {
		var raw struct {
			Calls []json.RawMessage `json:"tool_calls"`
		}
		_ = json.Unmarshal(one.stored.raw, &raw) // it was read before
		calls = append(calls, raw.Calls...)
	}
	out := m.with(m.stored.Content, map[string]any{"tool_calls": calls})
	out.joins = true
	return out
}
