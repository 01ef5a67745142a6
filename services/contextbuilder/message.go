package contextbuilder

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/quote"
	"github.com/turnledger/turnledger/services"
)

// Message is a chat message in the OpenAI form. Stored messages are returned as they came. A plain message becomes JSON
// only when a caller asks for JSON, since most of a prompt is plain messages.
type Message struct {
	role string
	// text of a plain message; for all others stored is set.
	text   string
	stored *stored
	// joins: the message only makes calls, and further ones of the same answer may join them.
	joins bool
}

// stored is a message as it came, with the members that the window and the output forms need.
type stored struct {
	raw        json.RawMessage
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []toolCall      `json:"tool_calls"`
	Translated string          `json:"translated"`
	// FunctionCall is the older form of tool calls.
	FunctionCall *function `json:"function_call"`
	// Refusal stands in place of a content.
	Refusal string `json:"refusal"`
	// Audio is an answer that was spoken.
	Audio struct {
		Transcript string `json:"transcript"`
	} `json:"audio"`
	// Item holds what the chat form can't say of an item.
	Item    json.RawMessage `json:"item"`
	ItemIDs json.RawMessage `json:"item_ids"`
	// parts of the content, if the content is a list.
	parts []part
}

type toolCall struct {
	ID       string   `json:"id"`
	Function function `json:"function"`
	// Custom is a call whose input is free text.
	Custom struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

type function struct {
	Name      string    `json:"name"`
	Arguments arguments `json:"arguments"`
}

// arguments of a call: JSON in a string (OpenAI), or JSON itself (Ollama).
type arguments string

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	*a = arguments(text)
	return nil
}

// MarshalJSON returns the message as it came.
func (m Message) MarshalJSON() ([]byte, error) { return m.JSON(), nil }

// JSON returns the message as it came; the caller must not change it.
func (m Message) JSON() json.RawMessage {
	if m.stored != nil {
		return m.stored.raw
	}
	return m.AppendJSON(make([]byte, 0, len(m.text)+len(m.text)/16+40))
}

// AppendJSON appends the message as JSON.
func (m Message) AppendJSON(to []byte) []byte {
	if m.stored != nil {
		return append(to, m.stored.raw...)
	}
	to = append(append(append(to, `{"role":"`...), m.role...), `","content":`...)
	return append(quote.Append(to, m.text), '}')
}

// Role of the message.
func (m Message) Role() string { return m.role }

// Text of a message whose content is a string, else "".
func (m Message) Text() string {
	if m.stored == nil {
		return m.text
	}
	var s string
	if json.Unmarshal(m.stored.Content, &s) != nil {
		return ""
	}
	return s
}

// toolCalls returns the calls of an assistant, including those in Anthropic's blocks among the content.
func (m Message) toolCalls() []toolCall {
	if m.stored == nil {
		return nil
	}
	calls := slices.Clip(m.stored.ToolCalls)
	for _, p := range m.stored.parts {
		if p.Type == "tool_use" {
			calls = append(calls, p.call())
		}
	}
	return calls
}

// call is what a tool_use block calls.
func (p part) call() toolCall {
	return toolCall{ID: p.ID, Function: function{p.Name, arguments(p.Input)}}
}

// everyCall returns the message's tool calls and its function_call, the older form of a tool call.
func (m Message) everyCall() []toolCall {
	calls := m.toolCalls()
	if m.stored != nil && m.stored.FunctionCall != nil {
		f := *m.stored.FunctionCall
		calls = append(slices.Clip(calls), toolCall{ID: functionID(f.Name), Function: f})
	}
	return calls
}

// calls returns the ids of the message's calls.
func (m Message) calls() (ids []string) {
	for _, c := range m.everyCall() {
		ids = append(ids, c.ID)
	}
	return ids
}

// functionID stands in for the id that a function_call lacks, since its result names only the function. No tool call's
// id has a NUL.
func functionID(name string) string { return "\x00" + name }

// answers returns the ids of the calls whose results the message holds.
func (m Message) answers() (ids []string) {
	if m.stored == nil {
		return nil
	}
	if m.role == roleTool && m.stored.ToolCallID != "" {
		ids = append(ids, m.stored.ToolCallID)
	}
	if m.role == roleFunction {
		ids = append(ids, functionID(m.stored.Name))
	}
	for _, p := range m.stored.parts {
		if p.Type == "tool_result" && p.ToolUseID != "" {
			ids = append(ids, p.ToolUseID)
		}
	}
	return ids
}

// textMessage makes a plain message; the role needs no escapes.
func textMessage(role, text string) Message { return Message{role: role, text: text} }

// parseMessages reads a stored list. An element that is no object becomes a message without a role: recording checks
// the list's form, not its elements.
func parseMessages(list json.RawMessage) []Message {
	if len(list) == 0 {
		return nil
	}
	var raws []json.RawMessage // on the heap, so not before the list is known to be one
	if json.Unmarshal(list, &raws) != nil {
		return nil
	}
	out := make([]Message, len(raws))
	for i, raw := range raws {
		out[i] = parseMessage(raw)
	}
	return out
}

func parseMessage(raw json.RawMessage) Message {
	m := &stored{raw: raw}
	_ = json.Unmarshal(raw, m) // a member of an odd type leaves the rest readable
	if bytes.HasPrefix(m.Content, []byte("[")) {
		_ = json.Unmarshal(m.Content, &m.parts)
	}
	if m.Refusal != "" && len(m.parts) == 0 {
		m.parts = []part{{Type: "refusal", Refusal: m.Refusal}}
	}
	if m.Audio.Transcript != "" && len(m.parts) == 0 {
		m.parts = []part{{Type: "text", Text: m.Audio.Transcript}}
	}
	for k := range m.ToolCalls {
		if c := &m.ToolCalls[k]; c.Function.Name == "" && c.Custom.Name != "" {
			c.Function = function{c.Custom.Name, arguments(c.Custom.Input)}
		}
	}
	return Message{role: m.Role, stored: m}
}

// form is how a prompt shows messages: in which language, and whether with what only items say.
type form struct {
	lang  services.Language
	items bool
}

// appendMessages appends the messages that a prompt shows for a turn.
func appendMessages(out []Message, t *conversation.Turn, f form) []Message {
	if q := t.Question; q != nil {
		out = f.half(out, "user", q.QuestionMessages, q.QuestionNeutral, q.QuestionTranslated)
	}
	if a := t.Answer; a != nil && t.Status == conversation.Finalized {
		out = f.half(out, "assistant", a.AnswerMessages, a.AnswerNeutral, a.AnswerTranslated)
	}
	return out
}

func (f form) half(
	out []Message, role string, messages json.RawMessage, neutral, translated string,
) []Message {
	if list := parseMessages(messages); len(list) > 0 {
		for _, m := range spoken(list, f.items) {
			out = append(out, m.in(f.lang))
		}
		return out
	}
	text := neutral
	if f.lang == services.Translated && translated != "" {
		text = translated
	}
	if text == "" {
		return out // its items were deleted, and endpoints refuse a message without content
	}
	return append(out, textMessage(role, text))
}

// in returns a stored message in a language if the message carries its own translation, and otherwise the message as it
// is.
func (m Message) in(lang services.Language) Message {
	if lang != services.Translated || m.stored.Translated == "" {
		return m
	}
	return m.with(m.stored.Translated, nil)
}

// with returns a copy of the message with another content and other members. A nil member is left out.
func (m Message) with(content any, members map[string]any) Message {
	var all map[string]json.RawMessage
	if json.Unmarshal(m.stored.raw, &all) != nil {
		return m
	}
	all["content"] = marshal(content)
	for name, value := range members {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = marshal(value)
		}
	}
	out := parseMessage(marshal(all))
	if _, text := content.(string); text {
		out.stored.parts = nil // a refusal beside it is in the text
	}
	return out
}

// Words returns what the message says, also if its content is a list of parts.
func (m Message) Words() string { return plainText(m) }

func marshal(v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return json.RawMessage(`""`)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
