package message

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// Call is a call of a tool.
type Call struct {
	// raw is the call as it came; nil for a block.
	raw json.RawMessage

	ID       string   `json:"id"`
	Function function `json:"function"`
	// Custom is a call whose input is free text.
	Custom struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

// UnmarshalJSON implements json.Unmarshaler. A member of the wrong type does not keep it from reading the rest.
func (c *Call) UnmarshalJSON(raw []byte) error {
	type plain Call
	_ = json.Unmarshal(raw, (*plain)(c))
	if c.raw = bytes.Clone(raw); c.Function.Name == "" && c.Custom.Name != "" {
		c.Function = function{c.Custom.Name, arguments(c.Custom.Input)}
	}
	return nil
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

// ToolCalls returns the calls of an assistant, including those in Anthropic's blocks among the content.
func (m Message) ToolCalls() []Call {
	if m.stored == nil {
		return nil
	}
	calls := slices.Clip(m.stored.ToolCalls)
	for _, p := range m.stored.parts {
		if p.Type == toolUse {
			calls = append(calls, p.call())
		}
	}
	return calls
}

// call is what a tool_use block calls.
func (p part) call() Call {
	return Call{ID: p.ID, Function: function{p.Name, arguments(p.Input)}}
}

// everyCall returns the message's tool calls and its function_call, the older form of a tool call.
func (m Message) everyCall() []Call {
	calls := m.ToolCalls()
	if m.stored != nil && m.stored.FunctionCall != nil {
		f := *m.stored.FunctionCall
		calls = append(slices.Clip(calls), Call{ID: functionID(f.Name), Function: f})
	}
	return calls
}

// Calls returns the ids of the message's calls.
func (m Message) Calls() (ids []string) {
	for _, c := range m.everyCall() {
		ids = append(ids, c.ID)
	}
	return ids
}

// functionID stands in for the id that a function_call lacks, since its result names only the function. No tool call's
// id has a NUL.
func functionID(name string) string { return "\x00" + name }

// Answers returns the ids of the calls whose results the message holds.
func (m Message) Answers() (ids []string) {
	if m.stored == nil {
		return nil
	}
	if m.role == Tool && m.stored.ToolCallID != "" {
		ids = append(ids, m.stored.ToolCallID)
	}
	if m.role == Function {
		ids = append(ids, functionID(m.stored.Name))
	}
	for _, p := range m.stored.parts {
		if p.Type == toolResult && p.ToolUseID != "" {
			ids = append(ids, p.ToolUseID)
		}
	}
	return ids
}

// End is a call without its result, or a result without its call: the index of its message in a prompt, and the call's
// id.
type End struct {
	At int
	ID string
}

// LooseEnds returns the calls without a result right after them, and the results without a call right before them. Some
// models reuse an id. A result then belongs to the last call before it, or to a call in a turn that is not shown.
func LooseEnds(list []Message) (calls, results []End) {
	for i, m := range list {
		for _, id := range m.Answers() {
			k := len(calls) - 1
			for k >= 0 && calls[k].ID != id {
				k--
			}
			if k < 0 || apart(list[calls[k].At+1:i]) {
				results = append(results, End{i, id})
				continue
			}
			calls = slices.Delete(calls, k, k+1)
		}
		for _, id := range m.Calls() {
			calls = append(calls, End{i, id})
		}
	}
	return calls, results
}

// apart reports whether messages between a call and its result part them. What else the assistant says does not, before
// the first result, nor do other results.
func apart(between []Message) bool {
	results := false
	for _, m := range between {
		switch {
		case m.onlyItem():
		case len(m.Answers()) > 0:
			results = true
		case results || m.role != Assistant:
			return true
		}
	}
	return false
}

// CallAsText returns the message with one of its calls replaced by text.
func (m Message) CallAsText(id string) Message {
	isCall := func(p part) bool { return p.Type == toolUse && p.ID == id }
	if at := slices.IndexFunc(m.stored.parts, isCall); at >= 0 {
		return m.saysPart(at, callText(m.stored.parts[at].call()))
	}
	members := map[string]any{}
	var call Call
	switch at := slices.IndexFunc(m.stored.ToolCalls, func(c Call) bool { return c.ID == id }); {
	case at >= 0:
		call, members["tool_calls"] = m.stored.ToolCalls[at], nil
		if len(m.stored.ToolCalls) > 1 {
			members["tool_calls"] = slices.Delete(rawCalls(m), at, at+1)
		}
	case m.stored.FunctionCall == nil:
		return m
	default:
		call, members["function_call"] = Call{Function: *m.stored.FunctionCall}, nil
	}
	parts := list(m.stored.Content)
	if parts == nil {
		return m.with(strings.TrimSpace(m.Words()+"\n"+callText(call)), members)
	}
	return m.with(append(parts, textPart(callText(call))), members)
}

// rawCalls returns the tool calls of messages as they came.
func rawCalls(list ...Message) (raws []json.RawMessage) {
	for _, m := range list {
		for _, c := range m.stored.ToolCalls {
			raws = append(raws, c.raw)
		}
	}
	return raws
}

// ResultAsText returns the message with one of its results replaced by text.
func (m Message) ResultAsText(id string) Message {
	isResult := func(p part) bool { return p.Type == toolResult && p.ToolUseID == id }
	if at := slices.IndexFunc(m.stored.parts, isResult); at >= 0 {
		return m.saysPart(at, resultText("", WordsIn(m.stored.parts[at].Content)))
	}
	return New(User, resultText(m.stored.Name, m.Words()))
}

// saysPart returns the message with one part of its content replaced by a text.
func (m Message) saysPart(at int, text string) Message {
	parts := list(m.stored.Content)
	parts[at] = textPart(text)
	return m.with(parts, nil)
}

func textPart(text string) json.RawMessage {
	return events.Raw(map[string]string{"type": "text", "text": text})
}

func callText(c Call) string {
	return "[Tool call: " + c.Function.Name + " " + string(c.Function.Arguments) + "]"
}

func resultText(name, text string) string {
	if name != "" {
		name = " " + name
	}
	return "[Tool result" + name + ": " + text + "]"
}
