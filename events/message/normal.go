package message

import (
	"encoding/json"
	"maps"

	"github.com/turnledger/turnledger/events"
)

// missing are the members that clients expect of items of a type, with the values that they have where they are not
// sent.
var missing = map[string]Item{
	typeMessage:               {"status": done},
	typeCall:                  {"status": done},
	typeCallOutput:            {"status": done},
	typeReasoning:             {"summary": none},
	typeImage:                 {"status": done, "result": null},
	typeComputerOutput:        {"status": done},
	"computer_call":           {"status": done, "pending_safety_checks": none},
	"file_search_call":        {"status": done, "queries": none},
	"web_search_call":         {"status": done},
	"code_interpreter_call":   {"status": done, "code": null, "outputs": null},
	"tool_search_call":        {"status": done, "call_id": null, "execution": asText("server"), "arguments": null},
	"tool_search_output":      {"status": done, "call_id": null, "execution": asText("server"), "tools": none},
	"program_output":          {"status": done},
	"local_shell_call":        {"status": done},
	"shell_call":              {"status": done, "environment": null},
	"shell_call_output":       {"status": done, "max_output_length": null},
	"apply_patch_call":        {"status": done},
	"apply_patch_call_output": {"status": done},
	"mcp_list_tools":          {"tools": none},
}

// neverNull are the members that a client may send as null, and that are then left out when the item is shown: OpenAI's
// document has two forms of these types.
var neverNull = map[string][]string{
	typeCallOutput: {"call_id", "name", "namespace"}, typeComputerOutput: {"acknowledged_safety_checks"},
}

var done, none, null = asText(statusDone), json.RawMessage("[]"), json.RawMessage("null")

// Normal returns an item in the form that is given back: with the members that clients expect, with a list for a
// content, with annotations and logprobs where text is said, and without base64 data.
func (i Item) Normal() Item {
	i = maps.Clone(i)
	for name, value := range missing[i.Type()] {
		if IsNull(i[name]) {
			i[name] = value
		}
	}
	i = i.withoutNull(neverNull[i.Type()])
	switch i.Type() {
	case typeMessage:
		i["content"] = events.Raw(normalParts(i["content"], i.Text("role")))
	case typeCallOutput, typeCustomOutput:
		if list(i["output"]) != nil {
			i["output"] = events.Raw(normalParts(i["output"], Tool))
		}
	case typeImage:
		i["result"] = null
	case typeComputerOutput:
		if out := asMembers(i["output"]); isData(out["image_url"]) {
			i["output"] = out.without("image_url").JSON()
		}
	case "shell_call":
		if a := asMembers(i["action"]); a != nil {
			for _, name := range []string{"timeout_ms", "max_output_length"} {
				if IsNull(a[name]) {
					a[name] = null
				}
			}
			i["action"] = a.JSON()
		}
	case "mcp_approval_response":
		if IsNull(i["request_id"]) && isText(i["approval_request_id"]) {
			i["request_id"] = i["approval_request_id"] // the official document wants both
		}
	}
	return i
}

// WithoutID returns the item without its id, so that it gets one of ours.
func (i Item) WithoutID() Item { return i.without("id") }

// Includes are the values of the query member include: what of an item is shown only when it is asked for.
type Includes map[string]bool

// The values of Includes.
const (
	searchResults = "file_search_call.results"
	webResults    = "web_search_call.results"
	webSources    = "web_search_call.action.sources"
	imageURL      = "message.input_image.image_url"
	screenshotURL = "computer_call_output.output.image_url"
	codeOutputs   = "code_interpreter_call.outputs"
	encrypted     = "reasoning.encrypted_content"
	logprobs      = "message.output_text.logprobs"
)

// Logprobs reports whether the log probabilities of an answer are asked for.
func (i Includes) Logprobs() bool { return i[logprobs] }

// KnownIncludes are all values of Includes.
var KnownIncludes = []string{
	searchResults, webResults, webSources, imageURL, screenshotURL, codeOutputs, encrypted, logprobs,
}

// Shown returns what is shown of an item.
func (i Item) Shown(with Includes) Item {
	i = i.hidden(upstream, false)
	switch i.Type() {
	case typeMessage:
		return i.shownMessage(with)
	case "file_search_call":
		return i.hidden("results", with[searchResults])
	case "web_search_call":
		i = i.hidden("results", with[webResults])
		if a := asMembers(i["action"]); a["sources"] != nil && !with[webSources] {
			i = i.With("action", a.without("sources"))
		}
	case "code_interpreter_call":
		if i["outputs"] != nil && !with[codeOutputs] {
			i = i.With("outputs", nil) // it is required
		}
	case typeComputerOutput:
		if o := asMembers(i["output"]); o["image_url"] != nil && !with[screenshotURL] {
			i = i.With("output", o.without("image_url"))
		}
	case typeReasoning:
		return i.hidden("encrypted_content", with[encrypted])
	}
	return i
}

func (i Item) hidden(member string, shown bool) Item {
	if shown || i[member] == nil {
		return i
	}
	return i.without(member)
}

func (i Item) shownMessage(with Includes) Item {
	if with[imageURL] && with[logprobs] {
		return i
	}
	parts := list(i["content"])
	changed := false
	for n, raw := range parts {
		part := asMembers(raw)
		switch {
		case part.Type() == partImage && !with[imageURL] && isText(part["image_url"]):
			parts[n], changed = part.With("image_url", nil).JSON(), true
		case part.Type() == partOutput && !with[logprobs] && string(part["logprobs"]) != "[]":
			parts[n], changed = part.With("logprobs", []json.RawMessage{}).JSON(), true
		}
	}
	if !changed {
		return i
	}
	return i.With("content", parts)
}
