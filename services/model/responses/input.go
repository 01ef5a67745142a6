package responses

import (
	"encoding/json"
	"maps"
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

	raw    json.RawMessage
	called bool // a result that has its call
}

type toolCall struct {
	ID       string
	Type     string
	Function struct{ Name, Arguments string }
	Custom   struct{ Name, Input string }

	answered bool
}

// inputOf returns stored messages as the items of a request's input.
func inputOf(list []json.RawMessage) []any {
	list = chatmessage.Plain(chatmessage.ParseAll(list))
	messages := make([]message, len(list))
	open := map[string]*toolCall{} // the last call of each id, until it has its result
	for i, raw := range list {
		m := &messages[i]
		_ = json.Unmarshal(raw, m) // a member of an odd type leaves the rest readable
		m.raw = raw
		for k, c := range m.ToolCalls {
			open[c.ID] = &m.ToolCalls[k]
		}
		if call := open[m.CallID]; m.Role == "tool" && call != nil {
			call.answered, m.called = true, true
			delete(open, m.CallID)
		}
	}
	sent := map[string]bool{} // ids of whole items: the endpoint refuses one that stands twice
	out := []any{}
	for i, m := range messages {
		switch {
		case m.Role == "tool":
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
	if !m.called {
		return members{"role": "user", "content": "[Tool result: " + textIn(m.Content) + "]"}
	}
	kind := "function_call_output"
	if custom := itemOf(m.Item).Type(); custom == "custom_tool_call_output" {
		kind = custom
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
	if json.Unmarshal(m.Content, &raws) != nil || raws == nil {
		return nil, false
	}
	if whole := ofItem(m); whole != nil {
		return whole, true
	}
	for _, raw := range raws {
		var p struct {
			Type, Text string
			ImageURL   struct{ URL, Detail string } `json:"image_url"`
			File       map[string]any
		}
		_ = json.Unmarshal(raw, &p) // parts of the Responses API have members of other types
		switch p.Type {
		case "text", "output_text":
			parts = append(parts, members{"type": "input_text", "text": p.Text})
		case "image_url":
			detail := p.ImageURL.Detail
			if detail == "" {
				detail = "auto"
			}
			parts = append(parts, members{"type": "input_image", "image_url": p.ImageURL.URL, "detail": detail})
		case "file":
			file := members{"type": "input_file"}
			for name, value := range p.File {
				file[name] = value
			}
			parts = append(parts, file)
		default:
			parts = append(parts, raw)
		}
	}
	return parts, true
}

// ofItem returns the parts of the item that a message with parts was, or nil if it was none. An image or a file without
// data, id and address says nothing to the endpoint: a text stands beside such an image.
func ofItem(m message) (parts []any) {
	if m.Item == nil {
		return nil
	}
	list := items.Of(m.raw)
	if len(list) != 1 {
		return nil
	}
	content := list[0]["content"]
	if m.Role == "tool" {
		content = list[0]["output"]
	}
	var all []map[string]any
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
