package message

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/quote"
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
	// asSent: an endpoint of OpenAI's chat gets the message with all that its client wrote.
	asSent bool
}

// AsSent returns what a system or a user says as a message that Chat leaves as it is, and other messages as they were.
func (m Message) AsSent() Message {
	m.asSent = m.stored != nil && slices.Contains([]string{System, Developer, User}, m.stored.Role)
	return m
}

// stored is a message as it came, with the members that the window and the output forms need.
type stored struct {
	raw        json.RawMessage
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []Call          `json:"tool_calls"`
	Translated string          `json:"translated"`
	// FunctionCall is the older form of tool calls.
	FunctionCall *function `json:"function_call"`
	// Refusal stands in place of a content.
	Refusal string `json:"refusal"`
	// Audio is an answer that was spoken.
	Audio struct {
		Transcript string `json:"transcript"`
	} `json:"audio"`
	// Item holds what the chat form can't say of an item. ItemIDs are those of items that come from another place.
	Item    json.RawMessage `json:"item"`
	ItemIDs json.RawMessage `json:"item_ids"`
	// speaker is the role as it was recorded, but for one that RoleOf knows.
	speaker string
	// parts of the content, if the content is a list; or what stands in its place.
	parts []part
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

// Speaker is the role of the message as it was recorded: also one that a prompt shows as a user's.
func (m Message) Speaker() string {
	if m.stored == nil {
		return m.role
	}
	return m.stored.speaker
}

// Text of a message whose content is a string, else "".
func (m Message) Text() string {
	if m.stored == nil {
		return m.text
	}
	return textIn(m.stored.Content)
}

// New makes a plain message; the role needs no escapes.
func New(role, text string) Message { return Message{role: role, text: text} }

// ParseList reads a stored list. An element that is no object becomes a message of a user without a text: recording
// checks the list's form, not its elements.
func ParseList(list json.RawMessage) []Message {
	if len(list) == 0 {
		return nil
	}
	var raws []json.RawMessage // on the heap, so not before the list is known to be one
	if json.Unmarshal(list, &raws) != nil {
		return nil
	}
	return ParseAll(raws)
}

// ParseAll reads stored messages.
func ParseAll(raws []json.RawMessage) []Message {
	out := make([]Message, len(raws))
	for i, raw := range raws {
		out[i] = Parse(raw)
	}
	return out
}

// Parse reads a stored message. Its role is one that every endpoint knows: those of other libraries are mapped, and
// whoever else speaks is a user. Half a surrogate pair, which no endpoint takes, is U+FFFD.
func Parse(raw json.RawMessage) Message {
	m := read(Whole(raw))
	if m.role != m.stored.Role {
		m.stored.Role = m.role
		if m.stored.raw = withMember(m.stored.raw, "role", m.role); !bytes.HasPrefix(m.stored.raw, []byte("{")) {
			m.stored.raw = New(m.role, "").JSON()
		}
	}
	return m
}

// read reads a stored message, whose JSON stays as it came.
func read(raw json.RawMessage) Message {
	m := &stored{raw: raw}
	_ = json.Unmarshal(raw, m) // a member of an odd type leaves the rest readable
	speaker, is := RoleOf(m.Role)
	if m.speaker = cmp.Or(speaker, User); !is {
		speaker = User
	}
	m.parts = partsOf(m.Content)
	if m.Refusal != "" && len(m.parts) == 0 {
		m.parts = partsOf(events.Raw([]Item{{"type": asText(partRefusal), "refusal": asText(m.Refusal)}}))
	}
	if m.Audio.Transcript != "" && len(m.parts) == 0 && !isText(m.Content) {
		m.parts = partsOf(events.Raw([]json.RawMessage{textPart(m.Audio.Transcript)}))
	}
	return Message{role: cmp.Or(speaker, User), stored: m}
}

// RoleOf returns the role of OpenAI's chat that a role stands for, and reports whether it stands for one.
func RoleOf(role string) (string, bool) {
	switch known := strings.ToLower(strings.TrimSpace(role)); known {
	case "", System, Developer, User, Assistant, Tool, Function:
		return known, true
	case "ai", "bot", "gpt", "model":
		return Assistant, true
	case "human":
		return User, true
	}
	return role, false
}

// withMember returns an object with another value of a member.
func withMember(raw json.RawMessage, name string, value any) json.RawMessage {
	if all := asMembers(raw); all != nil {
		return all.With(name, value).JSON()
	}
	return raw
}

// Whole returns JSON with U+FFFD in the place of half a surrogate pair in an escape, which endpoints and Python refuse.
// JSON without one stays as it is, and so does what is no JSON.
func Whole(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw
	}
	duplicates := jsontext.AllowDuplicateNames(true)
	if jsontext.Value(raw).IsValid(duplicates) {
		return raw
	}
	whole, err := jsontext.AppendFormat(nil, raw, duplicates, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return raw
	}
	return whole
}

// withNumbers returns JSON with numbers that no float64 holds, which endpoints refuse, as texts.
func withNumbers(raw json.RawMessage) json.RawMessage {
	if !mayBeLarge(raw) {
		return raw
	}
	var out []byte
	done := 0
	tokens := jsontext.NewDecoder(bytes.NewReader(raw),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for token, err := tokens.ReadToken(); err == nil; token, err = tokens.ReadToken() {
		if token.Kind() != '0' {
			continue
		}
		number := token.String()
		if _, err := strconv.ParseFloat(number, 64); err != nil {
			end := int(tokens.InputOffset())
			out = append(append(out, raw[done:end-len(number)]...), strconv.Quote(number)...)
			done = end
		}
	}
	return append(out, raw[done:]...)
}

// mayBeLarge reports whether JSON has the digits that a number beyond float64 needs, be it in a text: 200 of them, or
// an exponent of three.
func mayBeLarge(raw []byte) bool {
	digits := 0
	for n, c := range raw {
		switch {
		case isDigit(c):
			if digits++; digits == 200 {
				return true
			}
		case digits > 0 && (c == 'e' || c == 'E'):
			exponent := bytes.TrimPrefix(raw[n+1:], []byte("+"))
			if len(exponent) >= 3 && isDigit(exponent[0]) && isDigit(exponent[1]) && isDigit(exponent[2]) {
				return true
			}
			digits = 0
		default:
			digits = 0
		}
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// named returns a message of a user that has a name with the name in front of its text.
func (m Message) named() Message {
	if m.stored == nil || m.role != User || m.stored.Name == "" {
		return m
	}
	without := map[string]any{"name": nil}
	if parts := list(m.stored.Content); parts != nil {
		return m.with(slices.Insert(parts, 0, textPart(m.stored.Name+":")), without)
	}
	return m.with(m.stored.Name+": "+m.Words(), without)
}

// IsNull reports whether a member has no value: it is left out, or null.
func IsNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Translated returns the message in its own translation if it carries one, and otherwise the message as it is.
func (m Message) Translated() Message {
	if m.stored == nil || m.stored.Translated == "" {
		return m
	}
	return m.with(m.stored.Translated, nil)
}

// with returns a copy of the message with another content and other members. A nil member is left out.
func (m Message) with(content any, members map[string]any) Message {
	all := asMembers(m.stored.raw)
	if all == nil {
		return m
	}
	all["content"] = events.Raw(content)
	for name, value := range members {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = events.Raw(value)
		}
	}
	out := Parse(events.Raw(all))
	if _, text := content.(string); text {
		out.stored.parts = nil // a refusal beside it is in the text
	}
	return out
}

// QuestionText returns the text of a question of messages: those of the user's messages, with an empty line between.
func QuestionText(messages json.RawMessage) string {
	var texts []string
	for _, m := range ParseList(messages) {
		if m.Speaker() == User {
			texts = append(texts, m.Texts()...)
		}
	}
	return strings.Join(texts, "\n\n")
}

// AnswerText returns the text of an answer of messages: that of the assistant's last message that has one.
func AnswerText(messages json.RawMessage) string {
	for _, m := range slices.Backward(ParseList(messages)) {
		if texts := m.Texts(); len(texts) > 0 && m.Speaker() == Assistant {
			return strings.Join(texts, "\n\n")
		}
	}
	return ""
}
