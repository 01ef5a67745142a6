package responses

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	chatmessage "github.com/turnledger/turnledger/events/message"

	"github.com/turnledger/turnledger/services/items"
)

// message is a stored chat message. Item is what the log keeps of an item of the Responses API that a chat message
// can't say.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"tool_call_id"`
	ToolCalls []toolCall      `json:"tool_calls"`
	Item      json.RawMessage `json:"item"`

	raw  json.RawMessage
	call *toolCall // of a result that has its call
}

type toolCall struct {
	ID       string
	Type     string
	Function struct{ Name, Arguments string }
	Custom   struct{ Name, Input string }

	answered bool
}

// inputOf returns stored messages as the items of a request's input. bare leaves out what is sent as it came: items
// that are neither messages nor calls nor outputs, and what stands beside those.
func inputOf(list []json.RawMessage, bare bool) []any {
	messages := paired(chatmessage.Plain(chatmessage.ParseAll(list)))
	last := len(messages) - 1
	for last >= 0 && !messages[last].ofUser() {
		last--
	}
	sent := map[string]bool{} // ids of whole items: the endpoint refuses one that stands twice
	out := []any{}
	for i, m := range messages {
		if bare {
			m.Item = nil
		}
		if i < last {
			m.shortenIDs()
		}
		switch {
		case m.Role == chatmessage.Tool:
			out = append(out, m.carries(resultOf(m)))
		case len(m.ToolCalls) == 0 && silent(m.Content):
			if item := whole(itemOf(m.Item), messages[i+1:]); item != nil && !sent[item.ID()] {
				out = append(out, item)
				sent[item.ID()] = item.ID() != ""
			}
		default:
			if !silent(m.Content) {
				out = append(out, m.carries(members{"role": m.Role, "content": contentOf(m)}))
			}
			for _, c := range m.ToolCalls {
				out = append(out, m.carries(callOf(c)))
			}
		}
	}
	return out
}

// ofUser reports whether the message is sent as one of a user: as a result is that has no call.
func (m message) ofUser() bool {
	return m.Role == chatmessage.User || m.Role == chatmessage.Tool && m.call == nil
}

// paired reads messages, and notes which calls have their results.
func paired(list []json.RawMessage) []message {
	messages := make([]message, len(list))
	open := map[string]*toolCall{} // the last call of each id, until it has its result
	for i, raw := range list {
		m := &messages[i]
		_ = json.Unmarshal(raw, m) // a member of an odd type leaves the rest readable
		m.raw = raw
		for k, c := range m.ToolCalls {
			open[c.ID] = &m.ToolCalls[k]
		}
		if call := open[m.CallID]; m.Role == chatmessage.Tool && m.CallID != "" && call != nil {
			call.answered, m.call = true, call
			delete(open, m.CallID)
		}
	}
	return messages
}

// longestID is the most that the API takes of a call's id.
const longestID = 64

func (m *message) shortenIDs() {
	m.CallID = chatmessage.ShortID(m.CallID, longestID)
	for i := range m.ToolCalls {
		m.ToolCalls[i].ID = chatmessage.ShortID(m.ToolCalls[i].ID, longestID)
	}
}

// carries adds to what is sent of a message what its item has beside it, unless that is a text in the place of a call.
func (m message) carries(sent members) members {
	_, typed := sent["type"] // all but messages
	for name, v := range itemOf(m.Item).Carried() {
		if typed != (name == "phase") {
			sent[name] = v
		}
	}
	return sent
}

func itemOf(raw json.RawMessage) (i items.Item) {
	_ = json.Unmarshal(raw, &i) // another form is no item
	return i
}

func silent(content json.RawMessage) bool {
	s := string(content)
	return s == "" || s == "null" || s == `""` || s == "[]"
}

// whole returns an item that is sent as it came, or nil for one that the endpoint refuses: reasoning without its
// encrypted content, of another vendor, or without the item that followed it.
func whole(i items.Item, next []message) items.Item {
	switch i.Type() {
	case "":
		return nil
	case "reasoning":
		foreign := i.Encrypted() == "" || strings.HasPrefix(i.Encrypted(), "anthropic.")
		if foreign || len(next) == 0 || next[0].Role != "assistant" {
			return nil
		}
	}
	return i.Unsealed()
}

// resultOf returns the result of a tool. The endpoint refuses one without its call, so that becomes text.
func resultOf(m message) members {
	if m.call == nil {
		return members{"role": "user", "content": "[Tool result: " + textIn(m.Content) + "]"}
	}
	kind := "function_call_output"
	if m.call.Custom.Name != "" {
		kind = "custom_tool_call_output"
	}
	var output any = textIn(m.Content)
	if parts, some := partsOf(m); some {
		output = parts
	}
	return members{"type": kind, "call_id": m.CallID, "output": output}
}

// callOf returns a call of a tool. The endpoint refuses one without its result, so that becomes text.
func callOf(c toolCall) members {
	custom := c.Custom.Name != ""
	switch {
	case !c.answered:
		said := c.Function.Name + c.Custom.Name + " " + c.Function.Arguments + c.Custom.Input
		return members{"role": "assistant", "content": "[Tool call: " + said + "]"}
	case custom:
		return members{"type": "custom_tool_call", "call_id": c.ID, "name": c.Custom.Name, "input": c.Custom.Input}
	default:
		return members{
			"type": "function_call", "call_id": c.ID, "name": c.Function.Name, "arguments": c.Function.Arguments,
		}
	}
}

// contentOf returns the content of a message. What an assistant said is a text, since parts of it would need members
// that only the endpoint's own answers have.
func contentOf(m message) any {
	if parts, some := partsOf(m); some && m.Role != "assistant" {
		return parts
	}
	return textIn(m.Content)
}

// partsOf returns the parts of a content that is a list, in the forms of the Responses API.
func partsOf(m message) (parts []any, some bool) {
	var raws []json.RawMessage
	if json.Unmarshal(m.Content, &raws) != nil {
		return nil, false
	}
	list := ofItem(m)
	if list == nil {
		for _, raw := range raws {
			list = append(list, partOf(raw))
		}
	}
	for _, p := range list {
		if p = legal(p); p != nil {
			parts = append(parts, p)
		}
	}
	return parts, len(parts) > 0
}

// partOf returns a part of a chat's content in the form of the Responses API.
func partOf(raw json.RawMessage) members {
	var p struct {
		Type     string
		Text     string
		ImageURL struct{ URL, Detail string } `json:"image_url"`
		File     members
	}
	_ = json.Unmarshal(raw, &p) // parts of the Responses API have members of other types
	switch p.Type {
	case "text", "output_text":
		return members{"type": "input_text", "text": p.Text}
	case "image_url":
		return members{
			"type": "input_image", "image_url": p.ImageURL.URL, "detail": cmp.Or(p.ImageURL.Detail, "auto"),
		}
	case "file":
		file := members{}
		maps.Copy(file, p.File)
		file["type"] = "input_file"
		return file
	}
	var all members
	_ = json.Unmarshal(raw, &all) // what is no object says nothing
	return all
}

// legal returns a part that the API takes, with what it says, or nil if that is nothing.
func legal(p members) members {
	holds := func(names ...string) (some bool) {
		for _, name := range names {
			text, is := p[name].(string)
			if some = some || is && text != ""; !is || text == "" {
				delete(p, name)
			}
		}
		return some
	}
	kind, _ := p["type"].(string)
	switch {
	case kind == "input_text" && holds("text"):
		return p
	case kind == "input_image":
		if url, is := p["image_url"].(string); is && !chatmessage.IsAddress(url) {
			delete(p, "image_url")
		}
		if !slices.Contains([]any{"low", "high", "auto", "original"}, p["detail"]) {
			p["detail"] = "auto"
		}
		if holds("image_url", "file_id") {
			return p
		}
	case kind == "input_file" && holds("file_id", "file_data", "file_url"):
		return p
	case holds("refusal"):
		return members{"type": "input_text", "text": p["refusal"]}
	case !strings.HasPrefix(kind, "input_") && holds("text"):
		return members{"type": "input_text", "text": p["text"]}
	}
	if words := chatmessage.PartWords(p); words != "" {
		return members{"type": "input_text", "text": words}
	}
	return nil
}

// ofItem returns the parts of the item that a message with parts was, or nil if it was none. An image or a file without
// data, id and address says nothing to the endpoint: a text stands beside such an image.
func ofItem(m message) (parts []members) {
	if m.Item == nil {
		return nil
	}
	list := items.Of(m.raw)
	if len(list) != 1 {
		return nil
	}
	content := list[0]["content"]
	if m.Role == chatmessage.Tool {
		content = list[0]["output"]
	}
	var all []members
	if json.Unmarshal(content, &all) != nil {
		return nil
	}
	for _, p := range all {
		says := p["image_url"] != nil || p["file_id"] != nil || p["file_data"] != nil || p["file_url"] != nil
		maps.DeleteFunc(p, func(_ string, value any) bool { return value == nil })
		switch kind := p["type"]; {
		case kind == "text", kind == "output_text":
			parts = append(parts, members{"type": "input_text", "text": p["text"]})
		case kind != "input_image" && kind != "input_file" || says: // else a text stands beside it
			parts = append(parts, p)
		}
	}
	return parts
}

// textIn returns the text of a content: a string, or the texts of its parts.
func textIn(content json.RawMessage) (s string) {
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct{ Text, Refusal string }
	_ = json.Unmarshal(content, &parts) // another form has no text
	for _, p := range parts {
		s += p.Text + p.Refusal
	}
	return s
}
