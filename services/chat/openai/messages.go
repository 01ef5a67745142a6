package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
)

// message has the members of a chat message that its place among the others depends on. all holds every member.
type message struct {
	raw  json.RawMessage
	all  map[string]json.RawMessage
	Role string `json:"role"`
	Call string `json:"tool_call_id"`
	// Calls are those of an assistant.
	Calls []json.RawMessage `json:"tool_calls"`
	Item  json.RawMessage   `json:"item"`
	ids   []string
}

// messagesOf returns stored messages as an endpoint takes them. The member item, which the log keeps for the Responses
// API, is left out, and so are messages that hold nothing else. Calls that stand in messages of their own are joined to
// one message, the last one before their results, since these must follow them. Other messages stay as they are.
func messagesOf(list []json.RawMessage) []json.RawMessage {
	var out []message
	for _, raw := range list {
		m := message{raw: raw}
		if json.Unmarshal(raw, &m) != nil || len(m.Calls) == 0 && m.Role != "tool" && len(m.Item) == 0 {
			out = append(out, message{raw: raw, Role: m.Role})
			continue
		}
		_ = json.Unmarshal(raw, &m.all) // it is an object
		if m.Role == "tool" {
			m.all["content"] = withoutImages(m.all["content"])
			out = callLast(out, m.Call)
		}
		if len(m.Item) > 0 {
			if delete(m.all, "item"); len(m.Calls) == 0 && silent(m.all["content"]) {
				continue
			}
		}
		if last := len(out) - 1; len(m.Calls) > 0 && last >= 0 && joins(out[last], m) {
			out[last] = out[last].join(m)
			continue
		}
		out = append(out, m)
	}
	raws := make([]json.RawMessage, len(out))
	for i, m := range withoutTorn(out) {
		raws[i] = m.json()
	}
	return raws
}

// withoutImages returns the content of a tool's result with texts in the place of images that stand in it, which
// OpenAI's endpoint refuses there.
func withoutImages(content json.RawMessage) json.RawMessage {
	var parts []map[string]json.RawMessage
	if !bytes.Contains(content, []byte(";base64,")) || json.Unmarshal(content, &parts) != nil {
		return content
	}
	for i, p := range parts {
		if string(p["type"]) == `"image_url"` {
			parts[i] = map[string]json.RawMessage{"type": encode("text"), "text": encode(conversation.ImageText)}
		}
	}
	return encode(parts)
}

func silent(content json.RawMessage) bool {
	s := string(content)
	return s == "" || s == "null" || s == `""` || s == "[]"
}

// joins reports whether the calls of a message join those of the message before it.
func joins(before, m message) bool {
	return len(before.Calls) > 0 && before.Role == m.Role && silent(m.all["content"])
}

func (m message) join(next message) message {
	m.Calls = append(slices.Clip(m.Calls), next.Calls...)
	m.all["tool_calls"] = encode(m.Calls)
	return m
}

// callLast moves the calls of the message that makes a call into the last message, if all between them is what else the
// assistant said.
func callLast(list []message, id string) []message {
	last := len(list) - 1
	for k := last; k >= 0 && list[k].Role == "assistant"; k-- {
		m := list[k]
		if !slices.Contains(callIDs(m.Calls), id) {
			continue
		}
		if k == last {
			break
		}
		to := message{Role: m.Role, Calls: append(slices.Clip(m.Calls), list[last].Calls...)}
		_ = json.Unmarshal(list[last].json(), &to.all) // it is an object
		to.all["tool_calls"] = encode(to.Calls)
		list[last] = to
		if silent(m.all["content"]) {
			return slices.Delete(list, k, k+1)
		}
		delete(m.all, "tool_calls")
		m.Calls = nil
		list[k] = m
		break
	}
	return list
}

func (m message) json() json.RawMessage {
	if m.all == nil {
		return m.raw
	}
	return encode(m.all)
}

func encode(v any) json.RawMessage {
	raw, _ := json.Marshal(v) // it came from JSON
	return raw
}

// withoutTorn turns calls without a result right after them, and results without their call right before them, into
// text, since an endpoint refuses them.
func withoutTorn(list []message) []message {
	answered := map[int]map[string]bool{}
	caller := -1
	for i := range list {
		m := &list[i]
		switch {
		case len(m.Calls) > 0:
			m.ids = callIDs(m.Calls)
			caller, answered[i] = i, map[string]bool{}
		case m.Role == "tool" && caller >= 0 && slices.Contains(list[caller].ids, m.Call) && !answered[caller][m.Call]:
			answered[caller][m.Call] = true
		case m.Role == "tool":
			m.all = map[string]json.RawMessage{
				"role": encode("user"), "content": encode("[Tool result: " + text(m.all["content"]) + "]"),
			}
			caller = -1
		default:
			caller = -1
		}
	}
	for i, done := range answered {
		list[i].say(done)
	}
	return list
}

func callIDs(calls []json.RawMessage) (ids []string) {
	for _, raw := range calls {
		var c struct{ ID string }
		_ = json.Unmarshal(raw, &c) // another form has no id
		ids = append(ids, c.ID)
	}
	return ids
}

// say turns the calls that are not answered into text. Of calls of the same id one has the answer, the last.
func (m *message) say(answered map[string]bool) {
	var kept []json.RawMessage
	var said []string
	for i, raw := range m.Calls {
		if answered[m.ids[i]] && !slices.Contains(m.ids[i+1:], m.ids[i]) {
			kept = append(kept, raw)
			continue
		}
		var c struct {
			Function struct{ Name, Arguments string }
			Custom   struct{ Name, Input string }
		}
		_ = json.Unmarshal(raw, &c) // what can't be read is not said
		said = append(said, "[Tool call: "+c.Function.Name+c.Custom.Name+" "+c.Function.Arguments+c.Custom.Input+"]")
	}
	if len(said) == 0 {
		return
	}
	if delete(m.all, "tool_calls"); len(kept) > 0 {
		m.all["tool_calls"] = encode(kept)
	}
	m.all["content"] = encode(strings.TrimSpace(text(m.all["content"]) + "\n" + strings.Join(said, "\n")))
}

// text returns the text of a content: a string, or the texts of its parts.
func text(content json.RawMessage) (s string) {
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // another form has no text
	for _, p := range parts {
		s += p.Text
	}
	return s
}
