package prompttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// responsesParts are the types of parts that the Responses API takes in the messages of a role.
var responsesParts = map[string][]string{
	"user": {"input_text", "input_image", "input_file"}, "assistant": {"output_text", "refusal"},
	"system": {"input_text", "input_image", "input_file"}, "developer": {"input_text", "input_image", "input_file"},
}

type item struct {
	Type, Role, ID  string
	Content, Output json.RawMessage
	CallID          string `json:"call_id"`
	Name            string
	Arguments       *string
	Input           *string
	Encrypted       string           `json:"encrypted_content"`
	Summary         *json.RawMessage `json:"summary"`
}

// Responses returns why a strict endpoint of OpenAI's Responses API would refuse an input: "No tool output found for
// function call", "No tool call found for function call output", "Duplicate item found with id", reasoning "without its
// required following item", roles, parts, ids and names of other forms, and half surrogate pairs. The forms of other
// items are in OpenAI's document (openaitest.Request).
func Responses(raws []json.RawMessage) (problems []Problem) {
	ids, open := map[string]bool{}, map[string]string{}
	question := lastQuestion(raws)
	for i, raw := range raws {
		add := func(format string, args ...any) {
			problems = append(problems, Problem{fmt.Sprintf(format, args...), string(raw)})
		}
		checkHalves(raw, add)
		var in item
		if err := json.Unmarshal(raw, &in); err != nil {
			add("is no item: %v", err)
			continue
		}
		if in.ID != "" && in.Type != "item_reference" && ids[in.ID] {
			add("the id of an item stands twice")
		}
		ids[in.ID] = true
		switch in.Type {
		case "", "message":
			kinds, known := responsesParts[in.Role]
			if !known {
				add("the role %q", in.Role)
			}
			checkParts(in.Content, kinds, add)
		case "function_call", "custom_tool_call":
			text := in.Arguments
			if in.Type == "custom_tool_call" {
				text = in.Input
			}
			if in.CallID == "" || len(in.CallID) > 64 && i < question || !toolName.MatchString(in.Name) || text == nil {
				add("a call without an id, a name or arguments that the API takes")
			}
			if text != nil && in.Type == "function_call" {
				checkHalves(json.RawMessage(*text), add)
			}
			open[in.CallID] = in.Type + "_output"
		case "function_call_output", "custom_tool_call_output":
			if open[in.CallID] != in.Type && (in.CallID != "" || in.Name == "") {
				add("an output without its call")
			}
			delete(open, in.CallID)
			checkParts(in.Output, responsesParts["user"], add)
		case "reasoning":
			if in.Encrypted == "" || in.Summary == nil {
				add("reasoning without its content or summary")
			}
			if i+1 == len(raws) || !follows(raws[i+1]) {
				add("reasoning without the item that followed it")
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		problems = append(problems, Problem{"the call has no output", id})
	}
	return problems
}

// follows reports whether an item is one of the model's.
func follows(raw json.RawMessage) bool {
	var in item
	_ = json.Unmarshal(raw, &in) // another form is a problem already
	return in.Role == "assistant" || in.Role == "" && in.Type != "function_call_output" &&
		in.Type != "custom_tool_call_output"
}

// checkParts checks a content: a text, or parts of some types.
func checkParts(content json.RawMessage, kinds []string, add func(string, ...any)) {
	var text *string
	var parts []struct {
		Type     string
		Text     *string
		ImageURL string `json:"image_url"`
		FileID   string `json:"file_id"`
		FileURL  string `json:"file_url"`
		FileData string `json:"file_data"`
		Refusal  *string
	}
	if json.Unmarshal(content, &text) == nil && text != nil {
		return
	}
	if json.Unmarshal(content, &parts) != nil || len(parts) == 0 {
		add("a content that is neither a text nor parts")
	}
	for _, p := range parts {
		says := p.Text != nil
		switch p.Type {
		case "input_image":
			says = address.MatchString(p.ImageURL) || p.ImageURL == "" && p.FileID != ""
		case "input_file":
			says = p.FileID+p.FileURL+p.FileData != ""
		case "refusal":
			says = p.Refusal != nil
		}
		if !slices.Contains(kinds, p.Type) || !says {
			add("a part of the type %q, or one that has nothing in it", p.Type)
		}
	}
}
