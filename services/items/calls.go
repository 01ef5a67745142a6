package items

import "encoding/json"

// callsOf returns the calls of a chat message, also in the older form of one call.
func callsOf(m Item) (out []Item) {
	for _, raw := range list(m["tool_calls"]) {
		call := object(raw)
		if custom := object(call["custom"]); custom != nil {
			out = append(out, present(Item{
				"type": quote(typeCustom), "call_id": call["id"], "name": custom["name"], "input": custom["input"],
			}))
			continue
		}
		f := object(call["function"])
		out = append(out, functionCall(call["id"], f["name"], f["arguments"]))
	}
	if f := object(m["function_call"]); f != nil {
		out = append(out, functionCall(f["name"], f["name"], f["arguments"]))
	}
	return out
}

// functionCall returns a call. Arguments that are JSON themselves become a text.
func functionCall(id, name, arguments json.RawMessage) Item {
	if !isText(arguments) && !IsNull(arguments) {
		arguments = quote(string(arguments))
	}
	return present(Item{
		"type": quote(typeCall), "status": quote(statusDone), "call_id": id, "name": name, "arguments": arguments,
	})
}

// callBlock returns the call that a block of Anthropic's form, or of the AI SDK's, makes.
func callBlock(part Item) Item {
	if part.Type() == "tool_use" {
		return functionCall(part["id"], part["name"], part["input"])
	}
	input := part["input"]
	if IsNull(input) {
		input = part["args"]
	}
	return functionCall(part["toolCallId"], part["toolName"], input)
}

// resultBlock returns the output that a block of Anthropic's form, or of the AI SDK's, is.
func resultBlock(part Item) Item {
	id, content := part["tool_use_id"], part["content"]
	if part.Type() == "tool-result" {
		id, content = part["toolCallId"], part["result"]
		if o := object(part["output"]); o != nil {
			content = o["value"]
		}
	}
	return output(Item{"tool_call_id": id, "content": content})
}

// output returns the output of a call that a tool's message is.
func output(m Item) Item {
	content := m["content"]
	switch parts := list(content); {
	case isText(content):
	case IsNull(content):
		content = quote("")
	case parts != nil:
		out := []Item{}
		for _, raw := range parts {
			if part := object(raw); part != nil {
				out = append(out, partOf(part, roleTool))
			} else {
				out = append(out, partOf(Item{"type": quote(chatText), "text": raw}, roleTool))
			}
		}
		content = encode(out)
	default:
		content = quote(string(content))
	}
	id := m["tool_call_id"]
	if IsNull(id) {
		id = m["name"]
	}
	return present(Item{
		"type": quote(typeCallOutput), "status": quote(statusDone), "call_id": id, "output": content,
	})
}

// present leaves out the members that have no value.
func present(i Item) Item {
	for k, v := range i {
		if v == nil {
			delete(i, k)
		}
	}
	return i
}
