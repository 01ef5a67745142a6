package openai

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// call is a call of a tool that has begun. index is the server's; -1 if it gave none.
type call struct {
	key, id, name string
	index         int
	kind          services.PartKind
	// minted: the id is ours.
	minted bool
}

// callPiece is a piece of a call as it arrives.
type callPiece struct {
	index    int
	id, name string
	text     string
	kind     services.PartKind
	// more are the members that nobody here knows, which the model wants to see again.
	more members
}

// pieceOf reads a piece of a call. Servers leave out the index, the id or the type, and send arguments as JSON.
func pieceOf(raw json.RawMessage) (p callPiece) {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(raw, &all) // what is no object is a piece without anything
	var known struct {
		Index    *int
		ID       json.RawMessage
		Type     string
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
		Custom struct{ Name, Input string }
	}
	_ = json.Unmarshal(raw, &known) // a member of an odd type leaves the rest readable
	p = callPiece{
		index: -1, id: scalar(known.ID), name: known.Function.Name, text: scalar(known.Function.Arguments),
		kind: services.PartCall, more: members{},
	}
	if known.Index != nil {
		p.index = *known.Index
	}
	if known.Type == services.ToolCustom || known.Custom.Name+known.Custom.Input != "" {
		p.kind, p.name, p.text = services.PartCustomCall, known.Custom.Name, known.Custom.Input
	}
	for name, value := range all {
		if !slices.Contains([]string{"index", "id", "type", "function", "custom"}, name) && !message.IsNull(value) {
			p.more[name] = value
		}
	}
	return p
}

// scalar returns a text, or other JSON as it is written; null is no text.
func scalar(raw json.RawMessage) (text string) {
	if message.IsNull(raw) || json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// addCall adds a piece to its call, or begins one with it.
func (r *reader) addCall(raw json.RawMessage) {
	p := pieceOf(raw)
	c := r.callOf(p)
	if c == nil {
		c = r.begin(p)
	}
	part := services.AnswerPart{Kind: c.kind, CallID: c.id, Name: c.name, Text: p.text}
	if len(p.more) > 0 {
		p.more["type"] = "function_call"
		part.Item = endpoint.Item(p.more)
	}
	r.answer.Add(c.key, part)
}

// callOf returns the call that a piece belongs to, or nil if a call begins with it. A new id begins a call, also under
// the index of another one; without ids a name does, unless the call so far has the same and is not whole.
func (r *reader) callOf(p callPiece) *call {
	var c *call
	for _, begun := range r.calls {
		if p.index < 0 || begun.index == p.index {
			c = begun
		}
	}
	switch {
	case c == nil:
		return nil
	case p.id != "" && !c.minted && p.id != c.id:
		return nil
	case p.name != "" && (p.name != c.name || p.text != "" && json.Valid([]byte(r.answer.Text(c.key)))):
		return nil
	}
	return c
}

// begin begins a call. It gets an id of ours if the server gave none, or that of another call: the output of a tool
// names its call by it.
func (r *reader) begin(p callPiece) *call {
	taken := func(c *call) bool { return c.id == p.id }
	c := &call{
		key: "call " + strconv.Itoa(len(r.calls)), id: p.id, name: p.name, index: p.index, kind: p.kind,
		minted: p.id == "" || slices.ContainsFunc(r.calls, taken),
	}
	if c.minted {
		c.id = "call_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	r.calls = append(r.calls, c)
	return c
}
