package message

import (
	"cmp"
	"encoding/json"
	"maps"

	"github.com/turnledger/turnledger/events"
)

// itemMember is the member of a message that holds what the chat form can't say of its item.
const itemMember = "item"

// Message returns the chat message that the log keeps for an item in its normal form.
func (i Item) Message() json.RawMessage { return WithoutImages(i.Whole()) }

// Whole returns a chat message that says all of an item in its normal form.
func (i Item) Whole() json.RawMessage {
	m := i.chat()
	if back := m.carry(i).says(); len(back) != 1 || !back[0].Same(i) {
		m = Item{"role": asText(Assistant), "content": null, itemMember: events.Raw(i)}
	}
	return events.Raw(m)
}

// carry adds to a chat message what it can't say of its item, and returns it as it is read.
func (i Item) carry(whole Item) Message {
	said := read(events.Raw(i))
	rest := beside(said.derived(whole.Type()), whole)
	if whole.Type() != typeMessage && whole.Type() != typeCallOutput {
		rest["type"] = whole["type"]
	}
	if len(rest) > 0 {
		i[itemMember] = events.Raw(rest)
		said.stored.Item = i[itemMember]
	}
	return said
}

// InChat reports whether a chat has words for a recorded message: a text, parts of one, or a call of a tool or its
// output. An endpoint that takes chats gets no other.
func InChat(message json.RawMessage) bool {
	switch m := read(message); {
	case m.role == Tool || len(m.stored.ToolCalls) > 0:
		return true
	case string(m.stored.Content) == `""`:
		return IsNull(m.stored.Item)
	default:
		return !silent(m.stored.Content)
	}
}

// WithData returns the message that a model gets of an item as its client sent it: with the images and files whose data
// the log does not keep. It reports false for an item without such data.
func (i Item) WithData() (json.RawMessage, bool) {
	name := "content"
	switch i.Type() {
	case typeMessage:
	case typeCallOutput, typeCustomOutput:
		if !i.IsOutput() { // it answers no call, so it has no chat form to put the data in
			return nil, false
		}
		name = "output"
	case typeComputerOutput:
		if !isData(asMembers(i["output"])["image_url"]) {
			return nil, false
		}
		return events.Raw(Item{"role": asText(Assistant), "content": null, itemMember: events.Raw(i)}), true
	default:
		return nil, false
	}
	sent, parts := false, []Item{}
	for _, part := range i.Parts(name) {
		if part.Type() == partImage && isData(part["image_url"]) {
			image := Item{"url": part["image_url"]}
			if part["detail"] != nil {
				image["detail"] = part["detail"]
			}
			sent, parts = true, append(parts, Item{"type": asText(chatImage), "image_url": events.Raw(image)})
		} else if chat, says := chatOf(part); says {
			sent, parts = sent || !IsNull(part["file_data"]), append(parts, chat)
		}
	}
	if !sent {
		return nil, false
	}
	m := i.chat()
	m["content"] = events.Raw(parts)
	if m.carry(i); m[itemMember] == nil {
		m[itemMember] = json.RawMessage("{}") // Responses sends the parts of an item only as they are
	}
	return events.Raw(m), true
}

// chat returns what the chat form says of an item. It has no form for an output that names no call.
func (i Item) chat() Item {
	switch i.Type() {
	case typeMessage:
		return Item{"role": i["role"], "content": chatContent(i["content"], true)}.and(i, "name")
	case typeCall:
		return Item{"role": asText(Assistant), "content": nil, "tool_calls": events.Raw([]Item{{
			"id": i["call_id"], "type": asText("function"),
			"function": events.Raw(Item{"name": i["name"], "arguments": i["arguments"]}),
		}})}
	case typeCustom:
		return Item{"role": asText(Assistant), "content": nil, "tool_calls": events.Raw([]Item{{
			"id": i["call_id"], "type": asText("custom"),
			"custom": events.Raw(Item{"name": i["name"], "input": i["input"]}),
		}})}
	case typeCallOutput, typeCustomOutput:
		if i.IsOutput() {
			return Item{"role": asText(Tool), "tool_call_id": i["call_id"], "content": chatContent(i["output"], false)}
		}
	}
	return Item{"role": asText(Assistant), "content": nil}
}

// chatContent returns the parts that chat has a form for. Where bare is true and one text is all of it, it is that.
func chatContent(content json.RawMessage, bare bool) json.RawMessage {
	if isText(content) {
		return content
	}
	parts := []Item{}
	for _, raw := range list(content) {
		if chat, says := chatOf(asMembers(raw)); says {
			parts = append(parts, chat)
		}
	}
	if bare && len(parts) == 1 && parts[0].Type() == chatText {
		return parts[0]["text"]
	}
	return events.Raw(parts)
}

// beside returns the members of an item that the items of its message lack, or say otherwise: all of them, if the
// message does not say this one item.
func beside(says []Item, i Item) Item {
	if len(says) != 1 || says[0].Type() != i.Type() {
		return maps.Clone(i)
	}
	rest := Item{}
	for k, v := range i {
		switch d, has := says[0][k]; {
		case has && same(d, v):
		case has && (k == "content" || k == "output") && list(v) != nil:
			rest[k] = events.Raw(besideParts(list(d), list(v)))
		default:
			rest[k] = v
		}
	}
	return rest
}

// besideParts returns for each part what its chat part can't say, or null. A part with a type stands whole.
func besideParts(derived, parts []json.RawMessage) (rest []json.RawMessage) {
	for _, raw := range parts {
		part := asMembers(raw)
		more := part
		if _, says := chatOf(part); says && len(derived) > 0 {
			more = beside([]Item{asMembers(derived[0])}, part)
			derived = derived[1:]
		}
		if len(more) == 0 {
			rest = append(rest, json.RawMessage("null"))
		} else {
			rest = append(rest, events.Raw(more))
		}
	}
	return rest
}

// over lays the rest that beside returned over what a message says.
func over(says, rest Item) Item {
	out := maps.Clone(says)
	for k, v := range rest {
		if (k == "content" || k == "output") && list(v) != nil {
			v = events.Raw(overParts(list(says[k]), list(v)))
		}
		out[k] = v
	}
	return out
}

func overParts(says, rest []json.RawMessage) []json.RawMessage {
	out := []json.RawMessage{}
	for _, raw := range rest {
		more := asMembers(raw)
		part := more
		if _, consumes := chatOf(more); (consumes || more.Type() == "") && len(says) > 0 {
			if more.Type() == "" {
				part = over(asMembers(says[0]), more)
			}
			says = says[1:]
		}
		if part == nil {
			part = Item{}
		}
		out = append(out, part.JSON())
	}
	return out
}

// Items returns the items that a recorded message is, in their order and with the ids that they brought. What can't be
// read is an empty message.
func Items(message json.RawMessage) []Item {
	m := read(message)
	out := m.says()
	if ids := list(m.stored.ItemIDs); len(ids) == len(out) {
		for n := range out {
			if isText(ids[n]) {
				out[n]["id"] = ids[n]
			}
		}
	}
	return out
}

// Of returns what is left of a recorded message when only some of its items stay, or all of them. They get their ids
// into the message, since an id that comes from a place would change with the place.
func Of(recorded json.RawMessage, left []Item, all bool) json.RawMessage {
	out := asMembers(recorded)
	if !all {
		out = reduced(out, left)
	}
	ids := make([]json.RawMessage, len(left))
	for n, i := range left {
		ids[n] = i["id"]
	}
	return out.With("item_ids", ids).JSON()
}

// reduced returns a message that says several items, with those that are left.
func reduced(recorded Item, left []Item) Item {
	out := maps.Clone(recorded)
	for _, name := range []string{"refusal", "audio", "translated", "tool_calls", "function_call"} {
		delete(out, name)
	}
	out["content"] = null
	var calls []json.RawMessage
	for _, i := range left {
		chat := i.chat()
		if i.Type() == typeMessage {
			out["content"] = chat["content"]
			if t := recorded["translated"]; t != nil {
				out["translated"] = t
			}
			continue
		}
		calls = append(calls, list(chat["tool_calls"])...)
	}
	if len(calls) > 0 {
		out["tool_calls"] = events.Raw(calls)
	}
	return out
}

// says returns the items that a message is, with what stands beside its chat form.
func (m Message) says() []Item {
	rest := asMembers(m.stored.Item)
	if rest.Type() != "" && m.stored.speaker == Assistant && m.silent() && len(m.stored.ToolCalls) == 0 {
		return []Item{rest}
	}
	says := m.derived(rest.Type())
	if len(says) == 1 && rest != nil && (rest.Type() == "" || rest.Type() == says[0].Type()) {
		says[0] = over(says[0], rest)
	}
	return says
}

// derived returns the items that the chat form of a message says: its text and its tool calls, or a tool's result. kind
// tells the two kinds of results apart.
func (m Message) derived(kind string) (out []Item) {
	role := m.stored.speaker
	if role == Tool || role == Function {
		out := output(cmp.Or(m.stored.ToolCallID, m.stored.Name), m.stored.Content, m.stored.parts)
		if kind == typeCustomOutput {
			out = out.without("status")
			out["type"] = asText(kind)
		}
		return []Item{out}
	}
	var calls []Item
	for _, c := range m.stored.ToolCalls {
		calls = append(calls, c.item())
	}
	if f := m.stored.FunctionCall; f != nil {
		calls = append(calls, Call{ID: f.Name, Function: *f}.item())
	}
	content := []Item{}
	if isText(m.stored.Content) {
		content = append(content, text(m.stored.Content, role))
	}
	for _, p := range m.stored.parts {
		switch p.Type {
		case toolUse:
			calls = append(calls, p.call().item())
		case toolResult:
			calls = append(calls, output(p.ToolUseID, p.Content, partsOf(p.Content)))
		case thinking, hiddenThinking, typeReasoning: // a model's thoughts are no text of the conversation
		default:
			content = append(content, p.item(role))
		}
	}
	if len(content) > 0 || len(calls) == 0 {
		said := Item{"type": asText(typeMessage), "role": asText(role), "status": done, "content": events.Raw(content)}
		if m.stored.Name != "" {
			said["name"] = asText(m.stored.Name)
		}
		out = append(out, said)
	}
	return append(out, calls...)
}

// item returns a call as an item.
func (c Call) item() Item {
	if c.Custom.Name != "" {
		return Item{
			"type": asText(typeCustom), "call_id": asText(c.ID), "name": asText(c.Custom.Name),
			"input": asText(c.Custom.Input),
		}
	}
	return Item{
		"type": asText(typeCall), "status": done, "call_id": asText(c.ID), "name": asText(c.Function.Name),
		"arguments": asText(string(c.Function.Arguments)),
	}
}

// output returns the output of a call.
func output(id string, content json.RawMessage, parts []part) Item {
	out := Item{"type": asText(typeCallOutput), "status": done, "call_id": asText(id), "output": content}
	switch {
	case parts != nil:
		list := make([]Item, len(parts))
		for i, p := range parts {
			list[i] = p.item(Tool)
		}
		out["output"] = events.Raw(list)
	case IsNull(content):
		out["output"] = asText("")
	case !isText(content):
		out["output"] = asText(string(content))
	}
	return out
}
