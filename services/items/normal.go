package items

import (
	"encoding/json"
	"strings"
)

// Normal returns an item in the form that is given back: with a status, with a list for a content, with annotations and
// logprobs where text is said, and without base64 data.
func Normal(i Item) Item {
	switch i.Type() {
	case typeMessage:
		i = i.With("content", normalParts(i["content"], i.text("role"))).done()
	case typeCall:
		i = i.done()
	case typeCallOutput, typeCustomOutput:
		if i.Type() == typeCallOutput {
			i = i.done()
		}
		if !isText(i["output"]) && list(i["output"]) != nil {
			i = i.With("output", normalParts(i["output"], roleTool))
		}
	case typeReasoning:
		if isNull(i["summary"]) {
			i = i.With("summary", []string{})
		}
	case typeImage:
		if isText(i["result"]) {
			i = i.With("result", nil)
		}
	case typeComputerOutput:
		i = i.done()
		if out := object(i["output"]); isData(out["image_url"]) {
			i = i.With("output", out.without("image_url"))
		}
	}
	return i
}

func (i Item) done() Item {
	if isNull(i["status"]) {
		return i.With("status", statusDone)
	}
	return i
}

// prefixes are those of the ids of items, by type. An item of another type has the prefix of others.
var prefixes = map[string]string{
	typeMessage: "msg_", typeCall: "fc_", typeCallOutput: "fco_", typeReasoning: "rs_",
	"file_search_call": "fs_", "web_search_call": "ws_", "code_interpreter_call": "ci_", typeImage: "ig_",
	"mcp_call": "mcp_", "mcp_list_tools": "mcpl_", "mcp_approval_request": "mcpr_",
	typeCustom: "ctc_", typeCustomOutput: "ctco_", "computer_call": "cu_",
}

const prefixOfOthers = "item_"

// maxID is the longest id that a client may give an item.
const maxID = 64

// Prefix returns what the ids of items of a type begin with.
func Prefix(kind string) string {
	if p, known := prefixes[kind]; known {
		return p
	}
	return prefixOfOthers
}

// KeepsID reports whether an item may have the id that its client gave it: one that is not too long, and begins as ids
// of its type do. OpenAI tests the first letters only.
func (i Item) KeepsID() bool {
	id := i.ID()
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, notInID) {
		return false
	}
	p, known := prefixes[i.Type()]
	return !known || strings.HasPrefix(id, strings.TrimSuffix(p, "_"))
}

// notInID reports whether an id can't have a character. An id stands in a path.
func notInID(r rune) bool {
	return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
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

// KnownIncludes are all values of Includes.
var KnownIncludes = []string{
	searchResults, webResults, webSources, imageURL, screenshotURL, codeOutputs, encrypted, logprobs,
}

// Shown returns what is shown of an item.
func (i Item) Shown(with Includes) Item {
	switch i.Type() {
	case typeMessage:
		return i.shownMessage(with)
	case "file_search_call":
		return i.hidden("results", with[searchResults])
	case "web_search_call":
		i = i.hidden("results", with[webResults])
		if a := object(i["action"]); a["sources"] != nil && !with[webSources] {
			i = i.With("action", a.without("sources"))
		}
	case "code_interpreter_call":
		if i["outputs"] != nil && !with[codeOutputs] {
			i = i.With("outputs", nil) // it is required
		}
	case typeComputerOutput:
		if o := object(i["output"]); o["image_url"] != nil && !with[screenshotURL] {
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
		part := object(raw)
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
