package openai

import (
	"encoding/json"

	"github.com/turnledger/turnledger/services"
)

// members of a JSON object; those without a value are left out.
type members map[string]any

func (m members) set(name string, value any, given bool) members {
	if given {
		m[name] = value
	}
	return m
}

// bodyOf returns the members of a request: those of a chat completion as they came, or else what its caller asks.
func bodyOf(o services.ModelOptions) members {
	if o.Members == nil {
		return optionsOf(o)
	}
	m := members{}
	for name, value := range o.Members {
		m[name] = value
	}
	bounded := o.Members["max_tokens"] != nil || o.Members["max_completion_tokens"] != nil
	return m.set("max_completion_tokens", o.MaxTokens, o.MaxTokens > 0 && !bounded)
}

// optionsOf returns what a caller asks of an answer as members of a request. Members that were not asked for are not
// sent, since older servers refuse what they do not know.
func optionsOf(o services.ModelOptions) members {
	m := members{}.
		set("temperature", o.Temperature, o.Temperature != nil).
		set("top_p", o.TopP, o.TopP != nil).
		set("presence_penalty", o.PresencePenalty, o.PresencePenalty != nil).
		set("frequency_penalty", o.FrequencyPenalty, o.FrequencyPenalty != nil).
		set("max_completion_tokens", o.MaxTokens, o.MaxTokens > 0).
		set("reasoning_effort", o.Effort, o.Effort != "").
		set("verbosity", o.Verbosity, o.Verbosity != "").
		set("response_format", formatOf(o.Format), o.Format.Kind != "")
	if tools := toolsOf(o.Tools); len(tools) > 0 {
		m["tools"] = tools
		m.set("tool_choice", choiceOf(o), o.ToolChoice.Mode != "").
			set("parallel_tool_calls", false, o.OneCall)
	}
	return m
}

func toolsOf(tools []services.ModelTool) (list []members) {
	for _, t := range tools {
		switch t.Kind {
		case services.ToolFunction:
			list = append(list, members{"type": t.Kind, "function": members{"name": t.Name}.
				set("description", t.Description, t.Description != "").
				set("parameters", t.Parameters, len(t.Parameters) > 0).
				set("strict", t.Strict, t.Strict != nil)})
		case services.ToolCustom:
			var raw struct{ Format json.RawMessage }
			_ = json.Unmarshal(t.Raw, &raw) // without a format the input is any text
			list = append(list, members{"type": t.Kind, "custom": members{"name": t.Name}.
				set("description", t.Description, t.Description != "").
				set("format", customFormat(raw.Format), len(raw.Format) > 0)})
		}
	}
	return list
}

// customFormat returns the format of a custom tool's input; a grammar stands apart in a chat's form.
func customFormat(raw json.RawMessage) any {
	var f struct{ Type, Syntax, Definition string }
	if json.Unmarshal(raw, &f) != nil || f.Type != "grammar" {
		return raw
	}
	return members{"type": f.Type, "grammar": members{"syntax": f.Syntax, "definition": f.Definition}}
}

func choiceOf(o services.ModelOptions) any {
	if o.ToolChoice.Mode != services.ToolNamed {
		return o.ToolChoice.Mode
	}
	kind := services.ToolFunction
	for _, t := range o.Tools {
		if t.Name == o.ToolChoice.Tool {
			kind = t.Kind
		}
	}
	return members{"type": kind, kind: members{"name": o.ToolChoice.Tool}}
}

func formatOf(f services.AnswerFormat) any {
	if f.Kind != "json_schema" {
		return members{"type": f.Kind}
	}
	return members{"type": f.Kind, "json_schema": members{"name": f.Name, "schema": f.Schema}.
		set("description", f.Description, f.Description != "").
		set("strict", f.Strict, f.Strict != nil)}
}
