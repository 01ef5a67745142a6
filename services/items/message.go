package items

import (
	"encoding/json"
	"maps"

	"github.com/turnledger/turnledger/events/conversation"
	chatmessage "github.com/turnledger/turnledger/events/message"
)

// itemMember is the member of a message that holds what the chat form can't say of its item.
const itemMember = "item"

// Message returns the chat message that the log keeps for an item in its normal form.
func Message(i Item) json.RawMessage { return conversation.WithoutImages(whole(i)) }

// whole returns a chat message that says all of an item in its normal form.
func whole(i Item) json.RawMessage {
	m := chatMessage(i)
	rest := beside(derived(m, i.Type()), i)
	if i.Type() != typeMessage && i.Type() != typeCallOutput {
		rest["type"] = i["type"]
	}
	if len(rest) > 0 {
		m[itemMember] = encode(rest)
	}
	if back := itemsOf(m); len(back) != 1 || !back[0].Same(i) {
		m = Item{"role": quote(roleAssistant), "content": nil, itemMember: encode(i)}
	}
	return encode(m)
}

// InChat reports whether a chat has words for a recorded message: a text, parts of one, or a call of a tool or its
// output. An endpoint that takes chats gets no other.
func InChat(message json.RawMessage) bool {
	m := object(message)
	switch content := string(m["content"]); {
	case m.text("role") == roleTool || len(list(m["tool_calls"])) > 0:
		return true
	case content == `""`:
		return IsNull(m[itemMember])
	default:
		return !IsNull(m["content"]) && content != "[]"
	}
}

// WithData returns the message that a model gets of an item as its client sent it: with the images and files whose data
// the log does not keep. It reports false for an item without such data.
func WithData(i Item) (json.RawMessage, bool) {
	name := "content"
	switch i.Type() {
	case typeMessage:
	case typeCallOutput, typeCustomOutput:
		if !i.IsOutput() { // it answers no call, so it has no chat form to put the data in
			return nil, false
		}
		name = "output"
	case typeComputerOutput:
		if !isData(object(i["output"])["image_url"]) {
			return nil, false
		}
		return encode(Item{"role": quote(roleAssistant), "content": null, itemMember: encode(i)}), true
	default:
		return nil, false
	}
	sent, parts := false, []Item{}
	for _, raw := range list(i[name]) {
		part := object(raw)
		if part.Type() == partImage && isData(part["image_url"]) {
			image := present(Item{"url": part["image_url"], "detail": part["detail"]})
			sent, parts = true, append(parts, Item{"type": quote(chatImage), "image_url": encode(image)})
		} else if chat, says := chatOf(part); says {
			sent, parts = sent || !IsNull(part["file_data"]), append(parts, chat)
		}
	}
	if !sent {
		return nil, false
	}
	m := chatMessage(i)
	m["content"] = encode(parts)
	rest := beside(derived(m, i.Type()), i)
	if i.Type() == typeCustomOutput {
		rest["type"] = i["type"]
	}
	m[itemMember] = encode(rest)
	return encode(m), true
}

// chatMessage returns what the chat form says of an item. It has no form for an output that names no call.
func chatMessage(i Item) Item {
	switch i.Type() {
	case typeMessage:
		return Item{"role": i["role"], "content": plain(i["content"])}
	case typeCall:
		return Item{"role": quote(roleAssistant), "content": nil, "tool_calls": encode([]Item{{
			"id": i["call_id"], "type": quote("function"),
			"function": encode(Item{"name": i["name"], "arguments": i["arguments"]}),
		}})}
	case typeCustom:
		return Item{"role": quote(roleAssistant), "content": nil, "tool_calls": encode([]Item{{
			"id": i["call_id"], "type": quote("custom"),
			"custom": encode(Item{"name": i["name"], "input": i["input"]}),
		}})}
	case typeCallOutput, typeCustomOutput:
		if i.IsOutput() {
			return Item{"role": quote(roleTool), "tool_call_id": i["call_id"], "content": chatContent(i["output"])}
		}
	}
	return Item{"role": quote(roleAssistant), "content": nil}
}

// chatContent returns parts in the form of a chat message's content.
func chatContent(content json.RawMessage) json.RawMessage {
	if isText(content) {
		return content
	}
	return encode(chatParts(content))
}

// plain is chatContent, but where one text is all of it, it is that.
func plain(content json.RawMessage) json.RawMessage {
	if isText(content) {
		return content
	}
	parts := chatParts(content)
	if len(parts) == 1 && parts[0].Type() == chatText {
		return parts[0]["text"]
	}
	return encode(parts)
}

// chatParts returns those of the parts that chat has a form for.
func chatParts(content json.RawMessage) []Item {
	parts := []Item{}
	for _, raw := range list(content) {
		if chat, says := chatOf(object(raw)); says {
			parts = append(parts, chat)
		}
	}
	return parts
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
			rest[k] = encode(besideParts(list(d), list(v)))
		default:
			rest[k] = v
		}
	}
	return rest
}

// besideParts returns for each part what its chat part can't say, or null. A part with a type stands whole.
func besideParts(derived, parts []json.RawMessage) (rest []json.RawMessage) {
	for _, raw := range parts {
		part := object(raw)
		more := part
		if _, says := chatOf(part); says && len(derived) > 0 {
			more = beside([]Item{object(derived[0])}, part)
			derived = derived[1:]
		}
		if len(more) == 0 {
			rest = append(rest, json.RawMessage("null"))
		} else {
			rest = append(rest, encode(more))
		}
	}
	return rest
}

// over lays the rest that beside returned over what a message says.
func over(says, rest Item) Item {
	out := maps.Clone(says)
	for k, v := range rest {
		if (k == "content" || k == "output") && list(v) != nil {
			v = encode(overParts(list(says[k]), list(v)))
		}
		out[k] = v
	}
	return out
}

func overParts(says, rest []json.RawMessage) []json.RawMessage {
	out := []json.RawMessage{}
	for _, raw := range rest {
		more := object(raw)
		part := more
		if _, consumes := chatOf(more); (consumes || more.Type() == "") && len(says) > 0 {
			if more.Type() == "" {
				part = over(object(says[0]), more)
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

// Of returns the items that a recorded message is, in their order and with the ids that they brought. What can't be
// read is an empty message.
func Of(message json.RawMessage) []Item {
	m := object(message)
	out := itemsOf(m)
	if ids := list(m[idsMember]); len(ids) == len(out) {
		for n := range out {
			if isText(ids[n]) {
				out[n]["id"] = ids[n]
			}
		}
	}
	return out
}

func itemsOf(m Item) []Item {
	rest := object(m[itemMember])
	if rest.Type() != "" && m.text("role") == roleAssistant && IsNull(m["content"]) && list(m["tool_calls"]) == nil {
		return []Item{rest}
	}
	says := derived(m, rest.Type())
	if len(says) == 1 && rest != nil {
		says[0] = over(says[0], rest)
	}
	return says
}

// derived returns the items that the chat form of a message says: its text and its tool calls, or a tool's result. kind
// tells the two kinds of results apart.
func derived(m Item, kind string) (out []Item) {
	role, _ := chatmessage.RoleOf(m.text("role"))
	if role == "" {
		role = roleUser
	}
	if role == roleTool || role == roleFunction {
		out := output(m)
		if kind == typeCustomOutput {
			out = out.without("status")
			out["type"] = quote(kind)
		}
		return []Item{out}
	}
	parts, calls := []json.RawMessage{}, callsOf(m)
	if isText(m["content"]) {
		parts = append(parts, text(m["content"], role).JSON())
	}
	for _, raw := range list(m["content"]) {
		part := object(raw)
		switch kind := part.Type(); kind {
		case "tool_use", "tool-call":
			calls = append(calls, callBlock(part))
		case "tool_result", "tool-result":
			calls = append(calls, resultBlock(part))
		case "thinking", "redacted_thinking", typeReasoning: // a model's thoughts are no text of the conversation
		default:
			if part == nil {
				part = Item{"type": quote(chatText), "text": raw}
			}
			parts = append(parts, partOf(part, role).JSON())
		}
	}
	parts = append(parts, spoken(m)...)
	if len(parts) > 0 || len(calls) == 0 {
		out = append(out, Item{
			"type": quote(typeMessage), "role": quote(role), "status": quote(statusDone), "content": encode(parts),
		})
	}
	return append(out, calls...)
}

// spoken returns what a message says beside its content: a refusal, or the transcript of what was spoken.
func spoken(m Item) (parts []json.RawMessage) {
	if isText(m["refusal"]) {
		parts = append(parts, encode(Item{"type": quote(partRefusal), "refusal": m["refusal"]}))
	}
	if t := object(m["audio"])["transcript"]; isText(t) && IsNull(m["content"]) {
		parts = append(parts, text(t, roleAssistant).JSON())
	}
	return parts
}
