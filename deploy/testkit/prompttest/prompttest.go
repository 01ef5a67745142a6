// Package prompttest checks prompts by the rules that the vendors publish for their APIs. For tests.
package prompttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
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
		Image struct{ URL string }          `json:"image_url"`
		Audio struct{ Data, Format string } `json:"input_audio"`
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
			p.Type == "image_url" && !address.MatchString(p.Image.URL) ||
			p.Type == "input_audio" && (p.Audio.Data == "" || p.Audio.Format != "wav" && p.Audio.Format != "mp3") {
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

// responsesParts are the types of parts that the Responses API takes in the messages of a role.
var responsesParts = map[string][]string{
	"user": {"input_text", "input_image", "input_file"}, "assistant": {"output_text", "refusal"},
	"system": {"input_text", "input_image", "input_file"}, "developer": {"input_text", "input_image", "input_file"},
}

type item struct {
	Type, Role, ID  string
	Content, Output json.RawMessage
	CallID          string `json:"call_id"`
	Name            string
	Arguments       *string
	Input           *string
	Encrypted       string           `json:"encrypted_content"`
	Summary         *json.RawMessage `json:"summary"`
}

// Responses returns why a strict endpoint of OpenAI's Responses API would refuse an input: "No tool output found for
// function call", "No tool call found for function call output", "Duplicate item found with id", reasoning "without its
// required following item", roles, parts, ids and names of other forms, and half surrogate pairs. The forms of other
// items are in OpenAI's document (openaitest.Request).
func Responses(raws []json.RawMessage) (problems []Problem) {
	ids, open := map[string]bool{}, map[string]string{}
	question := lastQuestion(raws)
	for i, raw := range raws {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(raw)})
		}
		checkHalves(raw, add)
		var in item
		if err := json.Unmarshal(raw, &in); err != nil {
			add("is no item: %v", err)
			continue
		}
		if in.ID != "" && in.Type != "item_reference" && ids[in.ID] {
			add("the id of an item stands twice")
		}
		ids[in.ID] = true
		switch in.Type {
		case "", "message":
			kinds, known := responsesParts[in.Role]
			if !known {
				add("the role %q", in.Role)
			}
			checkParts(in.Content, kinds, add)
		case "function_call", "custom_tool_call":
			text := in.Arguments
			if in.Type == "custom_tool_call" {
				text = in.Input
			}
			if in.CallID == "" || len(in.CallID) > 64 && i < question || !toolName.MatchString(in.Name) || text == nil {
				add("a call without an id, a name or arguments that the API takes")
			}
			if text != nil && in.Type == "function_call" {
				checkHalves(json.RawMessage(*text), add)
			}
			open[in.CallID] = in.Type + "_output"
		case "function_call_output", "custom_tool_call_output":
			if open[in.CallID] != in.Type && (in.CallID != "" || in.Name == "") {
				add("an output without its call")
			}
			delete(open, in.CallID)
			checkParts(in.Output, responsesParts["user"], add)
		case "reasoning":
			if in.Encrypted == "" || in.Summary == nil {
				add("reasoning without its content or summary")
			}
			if i+1 == len(raws) || !follows(raws[i+1]) {
				add("reasoning without the item that followed it")
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		problems = append(problems, Problem{"the call has no output", id})
	}
	return problems
}

// follows reports whether an item is one of the model's.
func follows(raw json.RawMessage) bool {
	var in item
	_ = json.Unmarshal(raw, &in) // another form is a problem already
	return in.Role == "assistant" || in.Role == "" && in.Type != "function_call_output" &&
		in.Type != "custom_tool_call_output"
}

// checkParts checks a content: a text, or parts of some types.
func checkParts(content json.RawMessage, kinds []string, add func(string, ...any)) {
	var text *string
	var parts []struct {
		Type     string
		Text     *string
		ImageURL string `json:"image_url"`
		FileID   string `json:"file_id"`
		FileURL  string `json:"file_url"`
		FileData string `json:"file_data"`
		Refusal  *string
	}
	if json.Unmarshal(content, &text) == nil && text != nil {
		return
	}
	if json.Unmarshal(content, &parts) != nil || len(parts) == 0 {
		add("a content that is neither a text nor parts")
	}
	for _, p := range parts {
		says := p.Text != nil
		switch p.Type {
		case "input_image":
			says = address.MatchString(p.ImageURL) || p.ImageURL == "" && p.FileID != ""
		case "input_file":
			says = p.FileID+p.FileURL+p.FileData != ""
		case "refusal":
			says = p.Refusal != nil
		}
		if !slices.Contains(kinds, p.Type) || !says {
			add("a part of the type %q, or one that has nothing in it", p.Type)
		}
	}
}
