package anthropic

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// longest is the most tokens that an answer may have unless the caller or a setting says otherwise. The API wants to be
// told, and refuses more than a model can write; all that it serves write as much.
const longest = 8192

// members of a JSON object.
type members = map[string]any

// requestOf returns the body of a request. What the API has no word for is left out: verbosity, the form of an answer
// that is any JSON, and members of a chat completion but for those where it stops.
func requestOf(model string, p services.Prompt) members {
	o := p.ModelOptions
	m := members{"model": model, "stream": true, "max_tokens": cmp.Or(o.MaxTokens, longest)}
	set := func(name string, value any, given bool) {
		if given {
			m[name] = value
		}
	}
	set("system", p.System, p.System != "")
	if o.Temperature != nil {
		m["temperature"] = min(*o.Temperature, 1) // OpenAI's goes up to 2
	}
	set("top_p", o.TopP, o.TopP != nil)
	stops := stopsOf(o.Members["stop"])
	set("stop_sequences", stops, len(stops) > 0)
	output, thinks := members{}, slices.Contains(efforts, o.Effort)
	if thinks {
		output["effort"], m["thinking"] = o.Effort, thinkingOf(o)
	}
	if o.Format.Kind == "json_schema" {
		output["format"] = members{"type": "json_schema", "schema": o.Format.Schema}
	}
	set("output_config", output, len(output) > 0)
	messages, called := message.AnthropicRequest(p.Messages, thinks)
	m["messages"] = messages
	if tools := toolsOf(o.Tools, called); len(tools) > 0 {
		m["tools"], m["tool_choice"] = tools, choiceOf(o)
	}
	return m
}

// stopsOf returns the texts at which a caller's answer ends: a text, or a list. The API refuses those that are blank.
func stopsOf(raw json.RawMessage) (stops []string) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		stops = []string{one}
	} else {
		_ = json.Unmarshal(raw, &stops) // there may be none
	}
	return slices.DeleteFunc(stops, func(s string) bool { return strings.TrimSpace(s) == "" })
}

// efforts are OpenAI's words for the effort of reasoning that the API has, too. The others ask for none.
var efforts = []string{"low", "medium", "high", "xhigh"}

func thinkingOf(o services.ModelOptions) members {
	m := members{"type": "adaptive"}
	if o.Summary != "" {
		m["display"] = "summarized"
	}
	return m
}

// toolsOf returns the tools that the caller offers, and a tool with a name and no more for each other one that the
// prompt's history calls: the API refuses calls if no tool is defined.
func toolsOf(offered []services.ModelTool, called []string) (tools []members) {
	for _, t := range offered {
		tools = append(tools, toolOf(t))
	}
	for _, name := range called {
		if !slices.ContainsFunc(tools, func(t members) bool { return t["name"] == name }) {
			tools = append(tools, members{"name": name, "input_schema": members{"type": "object"}})
		}
	}
	return tools
}

// toolOf returns a tool as the API defines it. The API knows no tools whose input is free text, so such a tool gets one
// argument, input.
func toolOf(t services.ModelTool) members {
	m := members{"name": t.Name}
	if t.Description != "" {
		m["description"] = t.Description
	}
	if t.Strict != nil {
		m["strict"] = *t.Strict
	}
	schema := members{}
	if t.Kind == services.ToolCustom {
		schema["properties"] = members{"input": members{"type": "string"}}
		schema["required"] = []string{"input"}
	} else {
		_ = json.Unmarshal(t.Parameters, &schema) // the caller checked that it is an object, or there is none
	}
	schema["type"] = "object" // a schema without a member would be refused
	m["input_schema"] = schema
	return m
}

// choiceOf returns whether the model calls tools. If the caller offers no tool, it calls none.
func choiceOf(o services.ModelOptions) members {
	m := members{"type": "auto"}
	switch {
	case o.ToolChoice.Mode == services.ToolNone || len(o.Tools) == 0:
		return members{"type": "none"}
	case o.ToolChoice.Mode == services.ToolRequired:
		m["type"] = "any"
	case o.ToolChoice.Mode == services.ToolNamed:
		m["type"], m["name"] = "tool", o.ToolChoice.Tool
	}
	if o.OneCall {
		m["disable_parallel_tool_use"] = true
	}
	return m
}
