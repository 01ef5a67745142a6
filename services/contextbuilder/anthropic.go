package contextbuilder

import (
	"encoding/json"
	"strings"
)

// Format of a prompt.
type Format string

// The forms of the two vendors.
const (
	OpenAI    Format = "openai"
	Anthropic Format = "anthropic"
)

// block is a content block of the Anthropic form.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Source    any             `json:"source,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
}

// toAnthropic gives the system text and messages whose roles strictly alternate.
// Tool calls become tool_use, their results tool_result in the user message right
// after; a result whose call is not right before it, and a call without its result,
// become text.
func toAnthropic(messages []Message) (string, []Message) {
	var system []string
	var out []alternating
	add := func(role string, blocks ...block) {
		if len(blocks) == 0 {
			return
		}
		if n := len(out); n > 0 && out[n-1].role == role {
			out[n-1].blocks = append(out[n-1].blocks, blocks...)
			return
		}
		out = append(out, alternating{role, blocks})
	}
	for i, m := range messages {
		switch m.role {
		case "system", "developer":
			system = append(system, plainText(m))
		case "assistant":
			add("assistant", assistantBlocks(m, messages[i+1:])...)
		case "tool", "function":
			add("user", toolResult(m, messages[:i]))
		default:
			add("user", m.contentBlocks()...)
		}
	}
	if len(out) > 0 && out[0].role == "assistant" {
		out = append([]alternating{{"user", []block{{Type: "text", Text: "(The assistant spoke first.)"}}}}, out...)
	}
	final := make([]Message, len(out))
	for i, a := range out {
		final[i] = a.message()
	}
	return strings.Join(system, "\n\n"), final
}

type alternating struct {
	role   string
	blocks []block
}

// message gives one text as a string, anything else as blocks; results of tools
// come first, as the API wants them.
func (a alternating) message() Message {
	if len(a.blocks) == 1 && a.blocks[0].Type == "text" {
		return textMessage(a.role, a.blocks[0].Text)
	}
	var results, rest []block
	for _, b := range a.blocks {
		if b.Type == "tool_result" {
			results = append(results, b)
		} else {
			rest = append(rest, b)
		}
	}
	content := marshal(append(results, rest...))
	raw := marshal(map[string]any{"role": a.role, "content": content})
	return Message{role: a.role, stored: &stored{raw: raw, Role: a.role, Content: content}}
}

func assistantBlocks(m Message, next []Message) []block {
	blocks := m.contentBlocks()
	for _, c := range m.toolCalls() {
		if !answeredNext(c.ID, next) {
			blocks = append(blocks, block{Type: "text", Text: "[Tool call: " + c.Function.Name + " " + c.Function.Arguments + "]"})
			continue
		}
		input := json.RawMessage(c.Function.Arguments)
		var object map[string]json.RawMessage
		if json.Unmarshal(input, &object) != nil || object == nil {
			input = marshal(map[string]string{"arguments": c.Function.Arguments})
		}
		blocks = append(blocks, block{Type: "tool_use", ID: c.ID, Name: c.Function.Name, Input: input})
	}
	return blocks
}

// answeredNext tells whether the run of tool messages right after a call answers it.
func answeredNext(id string, next []Message) bool {
	for _, m := range next {
		if m.role != "tool" {
			return false
		}
		if id != "" && m.answers() == id {
			return true
		}
	}
	return false
}

// toolResult gives a result whose call stands right before its run of tool
// messages, and text for any other.
func toolResult(m Message, before []Message) block {
	text := plainText(m)
	for i := len(before) - 1; i >= 0; i-- {
		if before[i].role == "tool" {
			if before[i].answers() == m.answers() {
				break // answered already
			}
			continue
		}
		for _, id := range before[i].calls() {
			if id != "" && id == m.answers() && before[i].role == "assistant" {
				return block{Type: "tool_result", ToolUseID: id, Content: text}
			}
		}
		break
	}
	name := m.name()
	if name != "" {
		name = " " + name
	}
	return block{Type: "text", Text: "[Tool result" + name + ": " + text + "]"}
}

// contentBlocks gives the message's content as blocks; texts of nothing but white
// space, which the API refuses, are left out.
func (m Message) contentBlocks() []block {
	text := m.text
	if m.stored == nil || json.Unmarshal(m.stored.Content, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return []block{{Type: "text", Text: text}}
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Source   json.RawMessage `json:"source"`
		ImageURL json.RawMessage `json:"image_url"`
	}
	if json.Unmarshal(m.stored.Content, &parts) != nil {
		return nil
	}
	var out []block
	for _, p := range parts {
		switch {
		case strings.TrimSpace(p.Text) != "":
			out = append(out, block{Type: "text", Text: p.Text})
		case p.Type == "image" && len(p.Source) > 0:
			out = append(out, block{Type: "image", Source: p.Source})
		case len(p.ImageURL) > 0:
			out = append(out, block{Type: "image", Source: map[string]string{"type": "url", "url": imageURL(p.ImageURL)}})
		}
	}
	return out
}

func imageURL(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal(raw, &o) // no URL gives ""
	return o.URL
}

func plainText(m Message) string {
	var texts []string
	for _, b := range m.contentBlocks() {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}
