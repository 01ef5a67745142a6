// Package uimessage reads and writes the messages of Vercel's AI SDK (UIMessage), and the chunks of its UI message
// stream. It does no I/O.
package uimessage

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/problems"
)

// Request is what a chat's transport sends. Members that nobody knows are the application's own.
type Request struct {
	ID        string          `json:"id"`
	Messages  []Message       `json:"messages"`
	Message   *Message        `json:"message"`
	Trigger   string          `json:"trigger"`
	MessageID string          `json:"messageId"`
	System    string          `json:"system"`
	Tools     json.RawMessage `json:"tools"`
	MaxTokens *int64          `json:"max_output_tokens"`
}

// Message is a message of a chat.
type Message struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// part is a part of a message, with the members of all kinds.
type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	MediaType string          `json:"mediaType"`
	Filename  string          `json:"filename"`
	URL       string          `json:"url"`
	CallID    string          `json:"toolCallId"`
	Tool      string          `json:"toolName"`
	State     string          `json:"state"`
	Input     json.RawMessage `json:"input"`
	Raw       json.RawMessage `json:"rawInput"`
	Output    json.RawMessage `json:"output"`
	ErrorText string          `json:"errorText"`
	Approval  *approval       `json:"approval"`
}

// approval is a person's answer to a call that needs it. Without an id it is what the call puts out.
type approval struct {
	ID       string `json:"id,omitempty"`
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func (a *approval) granted() bool { return a.Approved != nil && *a.Approved }

// failed is the status of an output that says why there is none.
const failed = "incomplete"

const regenerate = "regenerate-message"

func bad(field, why string) error { return &decide.Invalid{Field: field, Why: why} }

// Parse reads a body.
func Parse(body []byte) (r Request, err error) {
	if json.Unmarshal(body, &r) != nil {
		if !json.Valid(body) {
			return r, problems.New(problems.CodeMalformed, "the body is not JSON")
		}
		return r, bad("messages", "must be messages of the AI SDK, in a body as DefaultChatTransport sends it")
	}
	switch {
	case r.Message != nil && r.Messages != nil:
		return r, bad("message", "stands beside messages: send one of them")
	case r.Message != nil:
		r.Messages = []Message{*r.Message}
	case len(r.Messages) == 0 && r.Trigger != regenerate:
		return r, bad("messages", "is required")
	}
	if r.MaxTokens != nil && *r.MaxTokens < 1 {
		return r, bad("max_output_tokens", "must be at least 1")
	}
	return r, decide.ValidIDs("id", r.ID)
}

// Ask returns what is asked of the answerer. The key by which the same call is known is made of named.
func (r *Request) Ask() (a services.StepAsk, named []string, err error) {
	a = services.StepAsk{
		Store: true, Sent: map[string]json.RawMessage{}, Settings: services.Settings{}, Instructions: r.System,
		Completion: &services.Completion{Session: r.ID}, Streams: true,
	}
	chat := &services.ChatTurn{Regenerates: r.Trigger == regenerate}
	a.Completion.Chat = chat
	if r.MaxTokens != nil {
		a.Options.MaxTokens = *r.MaxTokens
	}
	if r.System != "" {
		a.Settings["instructions"] = text(r.System)
	}
	var asks []string
	if a.Options.Tools, asks, err = tools(r.Tools); err != nil {
		return a, nil, err
	}
	if len(asks) > 0 {
		a.Settings[approved], _ = json.Marshal(asks) // names
	}
	last := len(r.Messages) - 1
	switch {
	case last < 0:
	case r.Messages[last].Role == message.User:
		chat.Message = r.Messages[last].ID
		if chat.Message == "" {
			chat.Message = uuid.NewString()
		}
		if err := decide.ValidIDs("messages", chat.Message); err != nil {
			return a, nil, err
		}
	case chat.Regenerates: // what is regenerated stands there still
		r.Messages = r.Messages[:last]
		return r.regenerating(a)
	case r.Messages[last].Role == message.Assistant:
		return r.outputs(a, &r.Messages[last])
	default:
		return a, nil, bad("messages", "must end with the user's, or with tools' outputs")
	}
	if last < 0 || chat.Regenerates {
		return r.regenerating(a)
	}
	for n := range r.Messages {
		r.add(&a, &r.Messages[n])
	}
	if n := len(a.Input); n == 0 || chat.IDs[n-1] != r.Messages[last].ID {
		return a, nil, bad("messages", "must end with a message that says something")
	}
	return a, []string{"message", chat.Message, string(a.Input[len(a.Input)-1].JSON())}, nil
}

// regenerating asks for another answer by its id, or that of its question, where no question stands at the end.
func (r *Request) regenerating(a services.StepAsk) (services.StepAsk, []string, error) {
	chat := a.Completion.Chat
	if n := len(r.Messages) - 1; n >= 0 && r.Messages[n].Role == message.User {
		chat.Message = r.Messages[n].ID
		for n := range r.Messages {
			r.add(&a, &r.Messages[n])
		}
		return a, nil, nil
	}
	if chat.Message = r.MessageID; chat.Message == "" {
		return a, nil, bad("messageId", "is required, or messages that end with the question")
	}
	if turn, err := uuid.Parse(r.MessageID); err == nil {
		chat.Answer = turn
	}
	return a, nil, nil
}

// outputs asks with what the tools of a client put out, at the end of an answer.
func (r *Request) outputs(a services.StepAsk, m *Message) (services.StepAsk, []string, error) {
	named := []string{"outputs", m.ID}
	for n := range m.Parts {
		_, output := m.Parts[n].items()
		if output == nil {
			continue
		}
		a.Input = append(a.Input, output)
		named = append(named, string(output.JSON()))
	}
	if len(a.Input) == 0 {
		return a, nil, bad("messages", "must end with the user's, or with tools' outputs")
	}
	a.IDs = make([]string, len(a.Input))
	return a, named, nil
}

// add adds a message to the input, as the items that it is.
func (r *Request) add(a *services.StepAsk, m *Message) {
	var all []message.Item
	switch m.Role {
	case message.User:
		all = m.asked()
	case message.Assistant:
		all = m.said()
	default: // settings of the application
		return
	}
	for _, i := range all {
		sent, has := i.WithData()
		if i = i.Normal(); has {
			a.Sent[string(i.Message())] = sent
		}
		a.Input, a.IDs = append(a.Input, i), append(a.IDs, "")
		a.Completion.Chat.IDs = append(a.Completion.Chat.IDs, m.ID)
	}
}

// asked returns the item that a message of the user is; none where it says nothing.
func (m *Message) asked() []message.Item {
	var content []message.Item
	for _, p := range m.Parts {
		switch {
		case p.Type == "text" && p.Text != "":
			content = append(content, message.Item{}.With("type", "input_text").With("text", p.Text))
		case p.Type == "file" && strings.HasPrefix(p.MediaType, "image/"):
			content = append(content, message.Item{}.With("type", "input_image").With("image_url", p.URL).
				With("detail", "auto"))
		case p.Type == "file":
			at := "file_url"
			if strings.HasPrefix(p.URL, "data:") {
				at = "file_data"
			}
			content = append(content, message.Item{}.With("type", "input_file").With("filename", p.Filename).
				With(at, p.URL))
		}
	}
	if content == nil {
		return nil
	}
	return []message.Item{message.Item{}.With("type", "message").With("role", message.User).With("content", content)}
}

// said returns the items that an answer is, as far as a client keeps them.
func (m *Message) said() (out []message.Item) {
	for _, p := range m.Parts {
		if p.Type == "text" && p.Text != "" {
			out = append(out, message.Items(message.New(message.Assistant, p.Text).JSON())...)
			continue
		}
		call, output := p.items()
		if call != nil {
			out = append(out, call)
		}
		if output != nil {
			out = append(out, output)
		}
	}
	return out
}

// items returns the call that a part is, and its output; nil where it has none.
func (p *part) items() (call, output message.Item) {
	name, is := strings.CutPrefix(p.Type, "tool-")
	if !is && p.Type == "dynamic-tool" {
		name, is = p.Tool, true
	}
	if !is || p.CallID == "" || p.State == "input-streaming" {
		return nil, nil
	}
	input := p.Input
	if message.IsNull(input) {
		input = p.Raw
	}
	call = message.Item{}.With("type", "function_call").With("call_id", p.CallID).With("name", name).
		With("arguments", plain(input)).Normal()
	said, has := p.output()
	if has {
		output = message.Item{}.With("type", "function_call_output").With("call_id", p.CallID).With("output", said)
		if p.State == "output-error" || p.Approval != nil && p.State != "output-available" && !p.Approval.granted() {
			output = output.With("status", failed)
		}
		output = output.Normal()
	}
	return call, output
}

// output returns what a tool's part puts out, in words.
func (p *part) output() (said string, has bool) {
	switch p.State {
	case "output-available":
		return plain(p.Output), true
	case "output-error":
		return p.ErrorText, true
	case "approval-responded", "output-denied":
		if p.Approval == nil {
			return "", false
		}
		granted := p.Approval.granted()
		raw, _ := json.Marshal(approval{Approved: &granted, Reason: p.Approval.Reason}) // made of texts
		return string(raw), true
	}
	return "", false
}

// plain returns a text as it is, and any other value as JSON.
func plain(raw json.RawMessage) string {
	var words string
	if message.IsNull(raw) {
		return ""
	}
	if json.Unmarshal(raw, &words) == nil {
		return words
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // it is JSON
	return b.String()
}

func text(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a text
	return raw
}

// approved is the setting that names the tools whose calls a person approves.
const approved = "needs_approval"

// tool is a tool that the client runs, in one of the forms that clients have for it.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Strict      *bool           `json:"strict"`
	Approval    bool            `json:"needsApproval"`
	Function    *tool           `json:"function"`
}

// tools reads the tools of a request: a list in OpenAI's form, or an object of the AI SDK's by their names. asks are
// those whose calls a person approves.
func tools(raw json.RawMessage) (out []services.ModelTool, asks []string, err error) {
	var all []tool
	byName := map[string]tool{}
	switch {
	case message.IsNull(raw):
		return nil, nil, nil
	case json.Unmarshal(raw, &byName) == nil:
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			t := byName[name]
			t.Name = name
			all = append(all, t)
		}
	case json.Unmarshal(raw, &all) != nil:
		return nil, nil, bad("tools", "must be a list of functions, or an object of tools by their names")
	}
	for _, t := range all {
		if t.Function != nil {
			f := *t.Function
			f.Approval = f.Approval || t.Approval
			t = f
		}
		if t.Parameters == nil {
			t.Parameters = t.InputSchema
		}
		if t.Name == "" {
			return nil, nil, bad("tools", "must have names")
		}
		if t.Approval {
			asks = append(asks, t.Name)
		}
		out = append(out, t.model())
	}
	return out, asks, nil
}

func (t tool) model() services.ModelTool {
	flat := t.flat()
	flat["type"] = services.ToolFunction
	raw, _ := json.Marshal(flat) // it came from JSON
	return services.ModelTool{
		Kind: services.ToolFunction, Name: t.Name, Description: t.Description, Parameters: t.Parameters,
		Strict: t.Strict, Raw: raw,
	}
}

func (t tool) flat() map[string]any {
	flat := map[string]any{"name": t.Name}
	if t.Description != "" {
		flat["description"] = t.Description
	}
	if len(t.Parameters) > 0 {
		flat["parameters"] = t.Parameters
	}
	if t.Strict != nil {
		flat["strict"] = *t.Strict
	}
	return flat
}
