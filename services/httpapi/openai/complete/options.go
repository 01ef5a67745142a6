package complete

import (
	"cmp"
	"encoding/json"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// function is a tool's description.
type function struct {
	Name, Description string
	Parameters        json.RawMessage
	Strict            *bool
}

// options reads what a model is asked that takes no chat completions. What is of another form is left to those that do.
func options(m services.Settings) (o services.ModelOptions, err error) {
	var in struct {
		Temperature, TopP   *float64
		Presence, Frequency *float64
		Most, MostLegacy    *int64
		Effort, Verbosity   string
		Parallel            *bool
		Tools               []json.RawMessage
		Functions           []function
		Format              struct {
			Type   string
			Schema struct {
				Name, Description string
				Schema            json.RawMessage
				Strict            *bool
			} `json:"json_schema"`
		}
	}
	for name, into := range map[string]any{
		"temperature": &in.Temperature, "top_p": &in.TopP, "presence_penalty": &in.Presence,
		"frequency_penalty": &in.Frequency, "max_completion_tokens": &in.Most, "max_tokens": &in.MostLegacy,
		"reasoning_effort": &in.Effort, "verbosity": &in.Verbosity, "parallel_tool_calls": &in.Parallel,
		"tools": &in.Tools, "functions": &in.Functions, "response_format": &in.Format,
	} {
		if raw := m[name]; !message.IsNull(raw) && json.Unmarshal(raw, into) != nil {
			return o, bad(name, "invalid_type", "'"+name+"' has a type that it can't have.")
		}
	}
	var none int64
	o = services.ModelOptions{
		Temperature: in.Temperature, TopP: in.TopP, PresencePenalty: in.Presence, FrequencyPenalty: in.Frequency,
		MaxTokens: *cmp.Or(in.Most, in.MostLegacy, &none), Effort: in.Effort, Verbosity: in.Verbosity,
		OneCall: in.Parallel != nil && !*in.Parallel,
	}
	if f := in.Format; f.Type != "" && f.Type != "text" {
		o.Format = services.AnswerFormat{
			Kind: f.Type, Name: f.Schema.Name, Description: f.Schema.Description, Schema: f.Schema.Schema,
			Strict: f.Schema.Strict,
		}
	}
	for _, raw := range in.Tools {
		var t struct {
			Type     string
			Function function
			Custom   struct {
				function

				Format json.RawMessage
			}
		}
		if json.Unmarshal(raw, &t) != nil {
			return o, bad("tools", "invalid_type", "'tools' must hold tools.")
		}
		f, flat := t.Function, map[string]any{"type": t.Type}
		if t.Type == services.ToolCustom {
			f = t.Custom.function
			flat["format"] = t.Custom.Format
		}
		o.Tools = append(o.Tools, toolOf(t.Type, f, flat))
	}
	if len(in.Tools) == 0 {
		for _, f := range in.Functions {
			o.Tools = append(o.Tools, toolOf(services.ToolFunction, f, map[string]any{"type": services.ToolFunction}))
		}
	}
	for _, name := range []string{"function_call", "tool_choice"} {
		if raw := m[name]; !message.IsNull(raw) {
			o.ToolChoice = choice(raw)
		}
	}
	return o, nil
}

// toolOf returns a tool, whose Raw is the form of the Responses API.
func toolOf(kind string, f function, flat map[string]any) services.ModelTool {
	flat["name"] = f.Name
	if f.Description != "" {
		flat["description"] = f.Description
	}
	if len(f.Parameters) > 0 {
		flat["parameters"] = f.Parameters
	}
	if f.Strict != nil {
		flat["strict"] = *f.Strict
	}
	raw, _ := json.Marshal(flat) // it came from JSON
	return services.ModelTool{
		Kind: kind, Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: f.Strict, Raw: raw,
	}
}

// choice reads which tool the model has to call.
func choice(raw json.RawMessage) services.ToolChoice {
	var mode string
	var named struct {
		Name             string
		Function, Custom struct{ Name string }
	}
	if json.Unmarshal(raw, &mode) == nil {
		return services.ToolChoice{Mode: services.ToolMode(mode)}
	}
	_ = json.Unmarshal(raw, &named) // another form names none
	if name := cmp.Or(named.Function.Name, named.Custom.Name, named.Name); name != "" {
		return services.ToolChoice{Mode: services.ToolNamed, Tool: name}
	}
	return services.ToolChoice{}
}
