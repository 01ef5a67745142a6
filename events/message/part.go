package message

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
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

// part is an element of a content list, in a form of OpenAI's, Anthropic's or Vercel's AI SDK.
type part struct {
	raw json.RawMessage

	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	Source   json.RawMessage `json:"source"`
	ImageURL json.RawMessage `json:"image_url"`
	Filename string          `json:"filename"`
	File     struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
		ID   string `json:"file_id"`
	} `json:"file"`
	Audio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
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

// partsOf returns the parts of a content; nil if it is no list.
func partsOf(content json.RawMessage) []part {
	raws := list(content)
	if raws == nil {
		return nil
	}
	parts := make([]part, len(raws))
	for i, raw := range raws {
		parts[i] = partOf(raw)
	}
	return parts
}

// partOf reads a part. Calls and results of Vercel's AI SDK are blocks of Anthropic's form. A member of the wrong type
// does not keep it from reading the rest.
func partOf(raw json.RawMessage) part {
	p := part{raw: raw}
	_ = json.Unmarshal(raw, &p)
	switch p.Type {
	case "tool-call":
		p.Type, p.ID, p.Name = toolUse, p.CallID, p.ToolName
		if len(p.Input) == 0 {
			p.Input = p.Args
		}
	case "tool-result":
		p.Type, p.ToolUseID, p.Name = toolResult, p.CallID, p.ToolName
		p.Content, p.IsError = p.output()
	}
	return p
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
	if len(content) > 0 && !isText(content) {
		content = events.Raw(string(content)) // other JSON is shown as it is written
	}
	return content, failed
}

// Words returns what the message says, with words in place of parts that are not text.
func (m Message) Words() string {
	if m.stored == nil {
		return m.text
	}
	return wordsOf(m.stored.Content, m.stored.parts)
}

// Texts returns the texts of the message, without descriptions of what is no text.
func (m Message) Texts() (texts []string) {
	if text := m.Text(); text != "" {
		texts = append(texts, text)
	}
	if m.stored != nil {
		for _, p := range m.stored.parts {
			if text := p.said(); text != "" {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// WordsIn returns what a content says: a text, parts with words in place of those that are no text, or other JSON as it
// is written.
func WordsIn(content json.RawMessage) string { return wordsOf(content, partsOf(content)) }

func wordsOf(content json.RawMessage, parts []part) string {
	switch {
	case len(parts) > 0:
	case isText(content):
		return textIn(content)
	case parts == nil && !IsNull(content):
		return string(content)
	}
	var texts []string
	for _, p := range parts {
		if s := p.words(); strings.TrimSpace(s) != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, "\n")
}

// said returns a part's text, unless that is what a model thought.
func (p part) said() string {
	if p.Type == typeReasoning {
		return ""
	}
	return cmp.Or(p.Text, p.Refusal)
}

// words returns a part's text, or a description of the part. It is empty for tool calls and results, which are shown
// elsewhere, and for a model's thoughts, which no other prompt may show.
func (p part) words() string {
	if said := p.said(); said != "" {
		return said
	}
	switch p.Type {
	case toolUse, toolResult, thinking, hiddenThinking, typeReasoning, chatText, partInput, partOutput, "":
		return ""
	case "image", chatImage, partImage:
		if url := p.url(); url != "" {
			return "[Image: " + url + "]"
		}
		return ImageText
	case chatFile, partFile, "document":
		return FileText(cmp.Or(p.File.Name, p.Filename))
	default:
		return "[" + p.Type + "]"
	}
}

// isImage reports whether the part shows an image.
func (p part) isImage() bool {
	return slices.Contains([]string{"image", chatImage, partImage}, p.Type)
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
	raw := p.ImageURL
	if len(raw) == 0 {
		raw = p.Source
	}
	if !isText(raw) {
		raw = asMembers(raw)["url"]
	}
	return textIn(raw)
}
