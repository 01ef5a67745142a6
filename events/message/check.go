package message

import (
	"encoding/json"
	"fmt"
	"slices"
)

// WrongKind says how a member of an item is wrong.
type WrongKind int

// A member is missing, has a wrong type, or a value that there is not.
const (
	Missing WrongKind = iota
	WrongType
	WrongValue
)

// Wrong says what is wrong with a member of an item. It never holds the member's value.
type Wrong struct {
	Member string
	Kind   WrongKind
}

func (w *Wrong) Error() string {
	switch w.Kind {
	case WrongType:
		return "has a wrong type"
	case WrongValue:
		return "has a value that there is not"
	case Missing:
	}
	return "is required"
}

// roles are those that a message may have.
var roles = []string{
	User, Assistant, System, Developer, Tool, "critic", "discriminator", "unknown",
}

// needed are the members that items of a type need besides their type, for clients to be able to read them. Those of
// other types are taken as they are.
var needed = map[string][]string{
	typeMessage: {"content"}, typeCall: {"call_id", "name", "arguments"}, typeCallOutput: {"call_id", "output"},
	typeReference: {"id"},
}

// Check returns what is wrong with an item that a client sent, or nil.
func (i Item) Check() *Wrong {
	kind := i.Type()
	if role := i["role"]; kind == typeMessage && !slices.Contains(roles, i.Text("role")) {
		switch {
		case IsNull(role):
			return &Wrong{"role", Missing}
		case !isText(role):
			return &Wrong{"role", WrongType}
		}
		return &Wrong{"role", WrongValue}
	}
	for _, name := range needed[kind] {
		switch {
		case IsNull(i[name]) && name == "call_id" && i.ofNamedTool():
		case IsNull(i[name]):
			return &Wrong{name, Missing}
		case isText(i[name]):
		case name != "content" && name != "output" || list(i[name]) == nil:
			return &Wrong{name, WrongType}
		default:
			if wrong := checkParts(name, list(i[name])); wrong != nil {
				return wrong
			}
		}
	}
	return nil
}

// ofNamedTool reports whether the item is the output of a tool that it names, which OpenAI's document lets stand in for
// the id of a call.
func (i Item) ofNamedTool() bool { return i.Type() == typeCallOutput && i.Text("name") != "" }

// Code returns OpenAI's code for what is wrong.
func (w *Wrong) Code() string {
	switch w.Kind {
	case WrongType:
		return "invalid_type"
	case WrongValue:
		return "invalid_value"
	case Missing:
	}
	return "missing_required_parameter"
}

func checkParts(name string, parts []json.RawMessage) *Wrong {
	for n, raw := range parts {
		part := asMembers(raw)
		at := fmt.Sprintf("%s[%d]", name, n)
		switch {
		case part == nil:
			return &Wrong{at, WrongType}
		case part.Type() == "":
			return &Wrong{at + ".type", Missing}
		case (part.Type() == partInput || part.Type() == partOutput) && !isText(part["text"]):
			return &Wrong{at + ".text", Missing}
		}
	}
	return nil
}
