package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/quote"
)

// The types of items that the chat form has words for. All others are kept whole.
const (
	typeMessage        = "message"
	typeCall           = "function_call"
	typeCallOutput     = "function_call_output"
	typeCustom         = "custom_tool_call"
	typeCustomOutput   = "custom_tool_call_output"
	typeReference      = "item_reference"
	typeTrigger        = "compaction_trigger"
	typeCompaction     = "compaction"
	typeReasoning      = "reasoning"
	typeImage          = "image_generation_call"
	typeComputerOutput = "computer_call_output"
)

const statusDone = "completed"

// Item is an item of a conversation: the members of a JSON object. Members that nobody knows are kept.
type Item map[string]json.RawMessage

// Errors of ParseItem. None holds anything of the item.
var (
	ErrNoObject = errors.New("must be an object")
	ErrNoType   = errors.New("must have a type, or a role")
	ErrTooDeep  = errors.New("must not nest deeper than 500 levels")
)

// ParseItem reads an item as a client sends it. Every object with a type is an item. Without a type, one with a role is
// a message, and one that has only an id refers to the item of that id.
func ParseItem(raw json.RawMessage) (Item, error) {
	var i Item
	if json.Unmarshal(raw, &i) != nil || i == nil {
		return nil, ErrNoObject
	}
	delete(i, upstream)
	if events.TooDeep(raw) {
		return nil, ErrTooDeep
	}
	switch {
	case i.Type() != "":
	case IsNull(i["type"]) && i.Text("role") != "":
		i["type"] = asText(typeMessage)
	case i.onlyID():
		i["type"] = asText(typeReference)
	default:
		return nil, ErrNoType
	}
	return i, nil
}

// onlyID reports whether the item has an id, and no other member with a value.
func (i Item) onlyID() bool {
	for name, value := range i {
		if name != "id" && !IsNull(value) {
			return false
		}
	}
	return i.ID() != ""
}

// Type returns the item's type, or "" if it has none.
func (i Item) Type() string { return i.Text("type") }

// ID returns the id that the item brings, or "" if it brings none.
func (i Item) ID() string { return i.Text("id") }

// CallID returns the id of the call that the item makes or answers, or "".
func (i Item) CallID() string { return i.Text("call_id") }

// Name returns the name of the tool that the item calls, or "".
func (i Item) Name() string { return i.Text("name") }

// Refers reports whether the item only names another one, by its id.
func (i Item) Refers() bool { return i.Type() == typeReference }

// Listed reports whether a conversation keeps the item. A compaction_trigger is an instruction, and no part of the
// conversation.
func (i Item) Listed() bool { return i.Type() != typeTrigger }

// IsCompaction reports whether the item stands for older ones.
func (i Item) IsCompaction() bool { return i.Type() == typeCompaction }

// NewCompaction returns a compaction.
func NewCompaction(id, content string) Item {
	return Item{"type": asText(typeCompaction), "id": asText(id), "encrypted_content": asText(content)}
}

// Asks reports whether the item belongs to a question: it is a message of the user or of the program that asks. All
// other items belong to an answer.
func (i Item) Asks() bool {
	if i.Type() != typeMessage {
		return false
	}
	switch i.Text("role") {
	case User, "system", "developer":
		return true
	default:
		return false
	}
}

// ByUser reports whether the item is a message of the user.
func (i Item) ByUser() bool { return i.Type() == typeMessage && i.Text("role") == User }

// ByAssistant reports whether the item is a message of the assistant.
func (i Item) ByAssistant() bool { return i.Type() == typeMessage && i.Text("role") == Assistant }

// IsOutput reports whether the item is the output of a call.
func (i Item) IsOutput() bool { return strings.HasSuffix(i.Type(), "_output") && i.CallID() != "" }

// IsCall reports whether the item is a call that an output may answer.
func (i Item) IsCall() bool { return !strings.HasSuffix(i.Type(), "_output") && i.CallID() != "" }

// Words returns the text of a message: its text parts, joined by blank lines.
func (i Item) Words() string {
	var texts []string
	for _, p := range partsOf(i["content"]) {
		if text := p.said(); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// thought returns the text of reasoning, or "".
func (i Item) thought() (text string) {
	for _, p := range partsOf(i["content"]) {
		text += p.Text
	}
	return text
}

// Parts returns the parts of a content or an output that is a list.
func (i Item) Parts(member string) []Item {
	raws := list(i[member])
	if raws == nil {
		return nil
	}
	parts := make([]Item, len(raws))
	for n, raw := range raws {
		parts[n] = asMembers(raw)
	}
	return parts
}

// JSON returns the item as JSON, with its members in order.
func (i Item) JSON() json.RawMessage { return events.Raw(i) }

// With returns a copy of the item with another value of a member.
func (i Item) With(name string, value any) Item {
	out := maps.Clone(i)
	if out == nil {
		out = Item{}
	}
	out[name] = events.Raw(value)
	return out
}

// without returns a copy of the item that lacks a member.
func (i Item) without(name string) Item {
	out := maps.Clone(i)
	delete(out, name)
	return out
}

// withoutNull leaves out those of the members that are null.
func (i Item) withoutNull(names []string) Item {
	for _, name := range names {
		if value, has := i[name]; has && IsNull(value) {
			i = i.without(name)
		}
	}
	return i
}

// Text returns the text that a member is, or "".
func (i Item) Text(name string) string { return textIn(i[name]) }

// textIn returns the text that JSON is, or "".
func textIn(raw json.RawMessage) (s string) {
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && raw[n] == '"' && isBare(string(raw[1:n])) {
		return string(raw[1:n])
	}
	_ = json.Unmarshal(raw, &s) // what is no string is no text
	return s
}

// isBare reports whether a text stands in JSON as it is.
func isBare(s string) bool {
	for n := range len(s) {
		if c := s[n]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Same reports whether two items say the same.
func (i Item) Same(o Item) bool {
	if len(i) != len(o) {
		return false
	}
	for k, v := range i {
		if w, has := o[k]; !has || !same(v, w) {
			return false
		}
	}
	return true
}

// same reports whether two JSON values are equal. Numbers are equal if they are written alike.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return reflect.DeepEqual(valueOf(a), valueOf(b))
}

func valueOf(raw json.RawMessage) (v any) {
	_ = decode(raw, &v) // raw came from a JSON document
	return v
}

func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// list returns the elements of a JSON array; none for any other value.
func list(raw json.RawMessage) (out []json.RawMessage) {
	if !isText(raw) { // a text may be long
		_ = json.Unmarshal(raw, &out) // no array has no elements
	}
	return out
}

// asMembers returns the members of a JSON object, or nil for any other value.
func asMembers(raw json.RawMessage) (out Item) {
	if !isText(raw) {
		_ = json.Unmarshal(raw, &out) // no object has no members
	}
	return out
}

func asText(s string) json.RawMessage { return quote.Append(make([]byte, 0, len(s)+len(s)/16+2), s) }
