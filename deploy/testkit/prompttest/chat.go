package prompttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// speaker matches the names that OpenAI takes for who speaks.
var speaker = regexp.MustCompile(`^[^\s<|\\/>]{1,64}$`)

// address matches what OpenAI's endpoints take as the address of an image.
var address = regexp.MustCompile(`^(https?://|data:image/)`)

// chatParts are the types of parts that OpenAI's document allows in the messages of a role.
var chatParts = map[string][]string{
	"system": {"text"}, "developer": {"text"}, "tool": {"text"}, "assistant": {"text", "refusal"},
	"user": {"text", "image_url", "input_audio", "file"},
}

// longestID is the most that OpenAI's chat takes of a call's id. In the turn under way it is not held against a prompt:
// gateways to other models write what these want to see again into it.
const longestID = 40

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
	question := lastQuestion(raws)
	for i, raw := range raws {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(raw)})
		}
		var m chatMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			add("is no message: %v", err)
			continue
		}
		m.check(i > question, add)
		checkHalves(raw, add)
	}
	return problems
}

// lastQuestion returns the index of the last message of a user, or -1.
func lastQuestion(raws []json.RawMessage) int {
	at := len(raws) - 1
	for at >= 0 && roleIn(raws[at]) != "user" {
		at--
	}
	return at
}

func roleIn(raw json.RawMessage) string {
	var m struct{ Role string }
	_ = json.Unmarshal(raw, &m) // another form is a problem of its own
	return m.Role
}

// checkHalves looks for half surrogate pairs, which Python and many endpoints refuse.
func checkHalves(raw json.RawMessage, add func(string, ...any)) {
	if json.Valid(raw) && !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
		add("half a surrogate pair")
	}
}

func (m chatMessage) check(underWay bool, add func(string, ...any)) {
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
	calls := m.checkCalls(underWay, add)
	var text string
	var parts []struct {
		Type  string
		Text  *string
		Image struct{ URL string } `json:"image_url"`
	}
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
		if !slices.Contains(kinds, p.Type) || p.Type == "text" && (p.Text == nil || *p.Text == "") ||
			p.Type == "image_url" && !address.MatchString(p.Image.URL) {
			add("a part of the type %q, or one that has nothing in it", p.Type)
		}
	}
}

func (m chatMessage) checkCalls(underWay bool, add func(string, ...any)) int {
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
		if c.Function != nil && c.Function.Arguments != nil {
			checkHalves(json.RawMessage(*c.Function.Arguments), add)
		}
		switch {
		case c.ID == "" || len(c.ID) > longestID && !underWay || strings.ContainsRune(c.ID, 0):
			add("a call without an id, or with a long one")
		case c.Type == "custom" && c.Custom != nil && toolName.MatchString(c.Custom.Name):
		case c.Type != "function" || c.Function == nil || c.Function.Arguments == nil,
			!toolName.MatchString(c.Function.Name):
			add("a call of another form than a function's")
		}
	}
	return len(calls)
}

// Readable returns why nobody could send a prompt on: a role that no endpoint knows, or half a surrogate pair.
func Readable(raws []json.RawMessage) (problems []Problem) {
	for _, raw := range raws {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(raw)})
		}
		var m struct{ Role string }
		if json.Unmarshal(raw, &m) != nil || chatParts[m.Role] == nil && m.Role != "function" {
			add("the role %q", m.Role)
		}
		checkHalves(raw, add)
	}
	return problems
}
