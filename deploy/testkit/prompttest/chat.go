package prompttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// speaker matches the names that OpenAI takes for who speaks.
var speaker = regexp.MustCompile(`^[^\s<|\\/>]{1,64}$`)

// chatParts are the types of parts that OpenAI's document allows in the messages of a role.
var chatParts = map[string][]string{
	"system": {"text"}, "developer": {"text"}, "tool": {"text"}, "assistant": {"text", "refusal"},
	"user": {"text", "image_url", "input_audio", "file"},
}

type chatMessage struct {
	Role    string
	Content json.RawMessage
	Name    *string
	CallID  *string          `json:"tool_call_id"`
	Calls   *json.RawMessage `json:"tool_calls"`
}

// Chat returns why a strict endpoint of chat completions would refuse a prompt: what OpenAI says, roles, contents and
// parts that OpenAI's document does not have, names and calls in other forms, and half surrogate pairs.
func Chat(raws []json.RawMessage) []Problem {
	problems := OpenAI(raws)
	for _, raw := range raws {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(raw)})
		}
		var m chatMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			add("is no message: %v", err)
			continue
		}
		m.check(add)
		for _, half := range halves.FindAllString(string(raw), -1) {
			if whole := pair.MatchString(half); !whole {
				add("half a surrogate pair")
			}
		}
	}
	return problems
}

var (
	halves = regexp.MustCompile(`(?i)(?:\\ud[89a-f][0-9a-f]{2})+`)
	pair   = regexp.MustCompile(`(?i)^(?:\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})+$`)
)

func (m chatMessage) check(add func(string, ...any)) {
	kinds, known := chatParts[m.Role]
	if !known {
		add("the role %q", m.Role)
	}
	if m.Name != nil && !speaker.MatchString(*m.Name) {
		add("the name %q", *m.Name)
	}
	if (m.Role == "tool") != (m.CallID != nil) {
		add("a tool_call_id of another than a tool, or a tool without")
	}
	calls := m.checkCalls(add)
	var text string
	var parts []struct{ Type string }
	switch {
	case len(m.Content) == 0 || string(m.Content) == "null":
		if calls == 0 {
			add("neither a content nor calls")
		}
	case json.Unmarshal(m.Content, &text) == nil:
		if text == "" && m.Role != "tool" {
			add("an empty content")
		}
	case json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0:
		add("a content that is neither a text nor parts")
	}
	for _, p := range parts {
		if !slices.Contains(kinds, p.Type) {
			add("a part of the type %q", p.Type)
		}
	}
}

func (m chatMessage) checkCalls(add func(string, ...any)) int {
	if m.Calls == nil {
		return 0
	}
	var calls []struct {
		ID, Type string
		Function *struct {
			Name      string
			Arguments *string
		}
		Custom *struct{ Name, Input string }
	}
	if json.Unmarshal(*m.Calls, &calls) != nil || len(calls) == 0 || m.Role != "assistant" {
		add("tool_calls that are no list of calls, or another's than an assistant's")
	}
	for _, c := range calls {
		switch {
		case c.ID == "" || strings.ContainsRune(c.ID, 0):
			add("a call without an id")
		case c.Type == "custom" && c.Custom != nil && toolName.MatchString(c.Custom.Name):
		case c.Type != "function" || c.Function == nil || c.Function.Arguments == nil,
			!toolName.MatchString(c.Function.Name):
			add("a call of another form than a function's")
		}
	}
	return len(calls)
}
