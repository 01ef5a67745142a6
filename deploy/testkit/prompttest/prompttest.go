// Package prompttest checks prompts by the rules that the vendors publish for their APIs. For tests.
package prompttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Problem is a reason for which an API would refuse a prompt. Message is the index of the message at fault.
type Problem struct {
	What    string
	Message string
}

type message struct {
	raw        json.RawMessage
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

func read(raws []json.RawMessage) (out []message, problems []Problem) {
	for _, raw := range raws {
		m := message{raw: raw}
		if err := json.Unmarshal(raw, &m); err != nil {
			problems = append(problems, Problem{"is no message: " + err.Error(), string(raw)})
		}
		out = append(out, m)
	}
	return out, problems
}

// OpenAI returns what is wrong with tool calls in a prompt of the chat completions API:
// "An assistant message with 'tool_calls' must be followed by tool messages responding
// to each 'tool_call_id'", and "messages with role 'tool' must be a response to a
// preceding message with 'tool_calls'".
func OpenAI(raws []json.RawMessage) []Problem {
	list, problems := read(raws)
	open := map[string]bool{}
	var caller message
	answered := func() {
		for id := range open {
			problems = append(problems, Problem{"the call " + id + " has no result", string(caller.raw)})
		}
		clear(open)
	}
	for _, m := range list {
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				problems = append(problems, Problem{"a result without its call", string(m.raw)})
			}
			delete(open, m.ToolCallID)
			continue
		}
		answered()
		caller = m
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	answered()
	return problems
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    struct {
		Type, URL, Data string
		MediaType       string `json:"media_type"`
	} `json:"source"`
	Thinking  *string `json:"thinking"`
	Signature string  `json:"signature"`
	Data      string  `json:"data"`
}

// mediaType matches those of images that the API takes.
var mediaType = regexp.MustCompile(`^image/(jpeg|png|gif|webp)$`)

var toolID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Anthropic returns what is wrong with a prompt of the messages API. The user's messages come first and last, roles
// alternate, and texts are not blank. Each tool_use id is used once and is answered in the next message, by blocks at
// its beginning. A failed result has a text.
func Anthropic(raws []json.RawMessage) (problems []Problem) {
	list, problems := read(raws)
	ids, open := map[string]bool{}, map[string]bool{}
	for i, m := range list {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(m.raw)})
		}
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			add("message %d is of %q, want %q", i, m.Role, want)
		}
		blocks := blocksOf(m, add)
		calls, others := map[string]bool{}, false
		for _, b := range blocks {
			b.check(m.Role, add)
			switch b.Type {
			case "tool_use":
				if ids[b.ID] {
					add("the id of a tool_use is used twice")
				}
				ids[b.ID], calls[b.ID] = true, true
			case "tool_result":
				if others {
					add("a tool_result after other blocks")
				}
				if !open[b.ToolUseID] {
					add("a tool_result without its tool_use in the message before")
				}
				delete(open, b.ToolUseID)
			default:
				others = true
			}
		}
		for id := range open {
			add("the tool_use %s has no tool_result", id)
		}
		open = calls
	}
	if len(list) == 0 || list[len(list)-1].Role != "user" {
		problems = append(problems, Problem{What: "the last message is not the user's"})
	}
	return problems
}

func blocksOf(m message, add func(string, ...any)) (blocks []block) {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	if err := json.Unmarshal(m.Content, &blocks); err != nil || len(blocks) == 0 {
		add("the content is neither text nor blocks")
	}
	return blocks
}

func (b block) check(role string, add func(string, ...any)) {
	switch b.Type {
	case "text":
		if strings.TrimSpace(b.Text) == "" {
			add("a blank text")
		}
	case "image":
		data := b.Source.Type == "base64" && mediaType.MatchString(b.Source.MediaType) && b.Source.Data != ""
		if role != "user" || !data && (b.Source.Type != "url" || !strings.HasPrefix(b.Source.URL, "https://")) {
			add("an image of an assistant, or without data or a reference by https")
		}
	case "thinking", "redacted_thinking":
		whole := b.Type == "thinking" && b.Thinking != nil && b.Signature != "" || b.Type != "thinking" && b.Data != ""
		if role != "assistant" || !whole {
			add("a thought of a user, or without its signature or data")
		}
	case "tool_use":
		var object map[string]json.RawMessage
		if role != "assistant" || !toolID.MatchString(b.ID) || !toolName.MatchString(b.Name) || json.Unmarshal(b.Input,
			&object) != nil || object == nil {
			add("a tool_use of a user, or with a bad id, name or input")
		}
	case "tool_result":
		if role != "user" {
			add("a tool_result of an assistant")
		}
		var words string
		var parts []block
		if b.Content != nil && json.Unmarshal(b.Content, &words) != nil && json.Unmarshal(b.Content, &parts) != nil {
			add("a tool_result of an odd content")
		}
		for _, p := range parts {
			p.check(role, add)
		}
		if b.IsError && strings.TrimSpace(words) == "" && len(parts) == 0 {
			add("a failure without a word")
		}
	default:
		add("a block of type %q", b.Type)
	}
}
