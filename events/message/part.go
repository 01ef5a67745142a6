package message

import (
	"encoding/json"
	"slices"
	"strings"
)

// Roles of messages.
const (
	System    = "system"
	Developer = "developer"
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
	Function  = "function"
)

// ImageText stands for an image whose data is not kept.
const ImageText = "[Image sent: photo]"

// FileText stands for a file whose data is not kept, or that a form has no place for.
func FileText(name string) string {
	if name == "" {
		return "[File sent]"
	}
	return "[File sent: " + name + "]"
}

// part is an element of a content list, in OpenAI's or Anthropic's form.
type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	Source   json.RawMessage `json:"source"`
	ImageURL json.RawMessage `json:"image_url"`
	File     struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
		ID   string `json:"file_id"`
	} `json:"file"`
	// Of Anthropic's blocks.
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	// Of the parts of Vercel's AI SDK, which become Anthropic's blocks.
	CallID   string          `json:"toolCallId"`
	ToolName string          `json:"toolName"`
	Args     json.RawMessage `json:"args"`
	Output   json.RawMessage `json:"output"`
	Result   json.RawMessage `json:"result"`
	Failed   bool            `json:"isError"`
}

// UnmarshalJSON implements json.Unmarshaler. It turns calls and results of Vercel's AI SDK into blocks of Anthropic's
// form. A member of the wrong type does not keep it from reading the rest.
func (p *part) UnmarshalJSON(raw []byte) error {
	type plain part
	_ = json.Unmarshal(raw, (*plain)(p))
	switch p.Type {
	case "tool-call":
		p.Type, p.ID, p.Name = "tool_use", p.CallID, p.ToolName
		if len(p.Input) == 0 {
			p.Input = p.Args
		}
	case "tool-result":
		p.Type, p.ToolUseID, p.Name = "tool_result", p.CallID, p.ToolName
		p.Content, p.IsError = p.output()
	}
	return nil
}

// output returns the content of a tool-result of the AI SDK, of its version 4 (result) or later (output), and reports
// whether the result is a failure.
func (p part) output() (content json.RawMessage, failed bool) {
	var out struct {
		Type          string
		Value, Reason json.RawMessage
	}
	_ = json.Unmarshal(p.Output, &out) // none leaves the result
	switch out.Type {
	case "content":
		return out.Value, false
	case "":
		content, failed = p.Result, p.Failed
		if len(p.Output) > 0 {
			content = p.Output
		}
	case "execution-denied":
		content, failed = out.Reason, true
	default:
		content, failed = out.Value, strings.HasPrefix(out.Type, "error-")
	}
	if len(content) > 0 && content[0] != '"' {
		content = encode(string(content)) // other JSON is shown as it is written
	}
	return content, failed
}

// Words returns what the message says, with words in place of parts that are not text.
func (m Message) Words() string {
	if m.stored == nil {
		return m.text
	}
	return textOf(m.stored.Content, m.stored.parts)
}

// textOf returns the text of a content: a string, or the texts of a list.
func textOf(content json.RawMessage, parts []part) string {
	var text string
	if len(parts) == 0 && json.Unmarshal(content, &text) == nil {
		return text
	}
	var texts []string
	for _, p := range parts {
		if s := p.words(); strings.TrimSpace(s) != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, "\n")
}

// words returns a part's text, or a description of the part. It is empty for tool calls and results, which are shown
// elsewhere, and for a model's thoughts, which no other prompt may show.
func (p part) words() string {
	switch {
	case p.Type == "reasoning":
		return ""
	case p.Text != "":
		return p.Text
	case p.Refusal != "":
		return p.Refusal
	}
	switch p.Type {
	case "tool_use", "tool_result", "thinking", "redacted_thinking", "text", "input_text", "output_text", "":
		return ""
	case "image", "image_url", "input_image":
		if url := p.url(); url != "" {
			return "[Image: " + url + "]"
		}
		return ImageText
	case "file", "input_file", "document":
		return FileText(p.File.Name)
	default:
		return "[" + p.Type + "]"
	}
}

// PartWords returns what a part of a content says, or a description of it; "" if it says nothing.
func PartWords(members map[string]any) string {
	var p part
	_ = json.Unmarshal(encode(members), &p) // never fails
	return p.words()
}

// result returns the text of a tool_result block. Content that is neither a text nor a list of parts is returned as it
// was written.
func (p part) result() string {
	var parts []part
	var text string
	if json.Unmarshal(p.Content, &text) == nil || json.Unmarshal(p.Content, &parts) == nil {
		return textOf(p.Content, parts)
	}
	return string(p.Content)
}

// isImage reports whether the part shows an image.
func (p part) isImage() bool {
	return slices.Contains([]string{"image", "image_url", "input_image"}, p.Type)
}

// url returns the address of an image that is a reference, or "".
func (p part) url() string {
	if s := p.address(); strings.HasPrefix(s, "http") && IsAddress(s) {
		return s
	}
	return ""
}

// IsAddress reports whether OpenAI's endpoints take a text as the address of an image, which may be its data.
func IsAddress(s string) bool {
	for _, start := range []string{"https://", "http://", "data:image/"} {
		if strings.HasPrefix(s, start) {
			return true
		}
	}
	return false
}

// address returns the address of an image, which may be its data, or "".
func (p part) address() string {
	var s string
	var o struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}
	raw := p.ImageURL
	if len(raw) == 0 {
		raw = p.Source
	}
	if json.Unmarshal(raw, &s) != nil {
		_ = json.Unmarshal(raw, &o) // "" if there is no URL
		s = o.URL
	}
	return s
}
