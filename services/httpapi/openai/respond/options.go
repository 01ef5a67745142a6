package respond

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// others are members that only a model behind a Responses API knows.
var others = []string{"top_logprobs", "max_tool_calls", "service_tier", "prompt_cache_key", "safety_identifier"}

// Members that the Open Responses specification has, and OpenAI's Responses API does not.
const (
	presencePenalty  = "presence_penalty"
	frequencyPenalty = "frequency_penalty"
)

// options reads what the request asks of the model.
func (p *parser) options(hosted HostedTools) services.ModelOptions {
	o := services.ModelOptions{
		OneCall: !p.unless("parallel_tool_calls"), Temperature: p.number("temperature", 0, 2),
		TopP: p.number("top_p", 0, 1), MaxTokens: p.count("max_output_tokens", 1),
		PresencePenalty: p.number(presencePenalty, -2, 2), FrequencyPenalty: p.number(frequencyPenalty, -2, 2),
		Others: only(p.members, others),
	}
	o.ToolChoice = p.choice()
	offered := p.tools(hosted)
	p.chosen(o.ToolChoice, offered, hosted)
	o.Tools = allowed(offered, o.ToolChoice)
	var reasoning struct{ Effort, Summary *string }
	p.read("reasoning", &reasoning, "an object")
	o.Effort = p.among("reasoning.effort", reasoning.Effort, "none", "minimal", "low", "medium", "high", "xhigh", "max")
	o.Summary = p.among("reasoning.summary", reasoning.Summary, "auto", "concise", "detailed")
	o.Verbosity, o.Format = p.answerText()
	p.word("service_tier", "auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
	p.logprobs(hosted)
	p.count("max_tool_calls", 0)
	return o
}

// answerText reads how the text of the answer is to be.
func (p *parser) answerText() (verbosity string, format services.AnswerFormat) {
	var text struct {
		Verbosity *string
		Format    *struct {
			Type              *string
			Name, Description string
			Schema            json.RawMessage
			Strict            *bool
		}
	}
	p.read("text", &text, "an object")
	verbosity = p.among("text.verbosity", text.Verbosity, "low", "medium", "high")
	f := text.Format
	if f == nil {
		return verbosity, format
	}
	if f.Type == nil {
		p.refuse("missing_required_parameter", "text.format.type", "'text.format.type' is required.")
	}
	kind := p.among("text.format.type", f.Type, "text", "json_schema", "json_object")
	var schema map[string]json.RawMessage
	switch {
	case kind != "json_schema":
	case f.Name == "":
		p.refuse("missing_required_parameter", "text.format.name", "'text.format.name' is required.")
	case message.IsNull(f.Schema):
		p.refuse("missing_required_parameter", "text.format.schema", "'text.format.schema' is required.")
	case json.Unmarshal(f.Schema, &schema) != nil:
		p.refuse("invalid_type", "text.format.schema", "Invalid type for 'text.format.schema': expected an object.")
	}
	if kind != "text" {
		format = services.AnswerFormat{
			Kind: kind, Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict,
		}
	}
	return verbosity, format
}

// mostLogprobs is how many likely tokens a response may list at each place.
const mostLogprobs = 20

// logprobs refuses likely tokens where they are not asked of the model: a chat model's are not read.
func (p *parser) logprobs(hosted HostedTools) {
	n := p.count("top_logprobs", 0)
	switch {
	case n > mostLogprobs:
		p.refuse("integer_above_max_value", "top_logprobs", "'top_logprobs' must be at most 20.")
	case bool(hosted):
	case n > 0:
		p.refuse("unsupported_value", "top_logprobs", "'top_logprobs' is not supported"+withChat)
	case p.includes().Logprobs():
		p.refuse("unsupported_value", "include", "'include' asks for what is not supported"+withChat)
	}
}

// withChat ends refusals of what only a model behind a Responses API does.
const withChat = " by the model behind this server: its endpoint does not speak Responses."

// tools reads the tools.
func (p *parser) tools(hosted HostedTools) (out []services.ModelTool) {
	var list []json.RawMessage
	p.read("tools", &list, "an array")
	for i, raw := range list {
		var t struct {
			Type, Name, Description string
			Parameters              json.RawMessage
			Strict                  *bool
		}
		param := fmt.Sprintf("tools[%d]", i)
		switch {
		case json.Unmarshal(raw, &t) != nil || t.Type == "":
			p.refuse("invalid_value", param, fmt.Sprintf("'%s' must be a tool with a type.", param))
			return nil
		case (t.Type == services.ToolFunction || t.Type == services.ToolCustom) && t.Name == "":
			p.refuse("missing_required_parameter", param+".name", fmt.Sprintf("'%s.name' is required.", param))
			return nil
		case t.Type != services.ToolFunction && t.Type != services.ToolCustom && !bool(hosted):
			p.refuse("unsupported_value", param+".type",
				fmt.Sprintf("'%s.type' names a tool that the model behind this server does not have.", param))
			return nil
		}
		if string(t.Parameters) == "null" {
			t.Parameters = nil
		}
		out = append(out, services.ModelTool{
			Kind: t.Type, Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict,
			Raw: raw,
		})
	}
	return out
}

// choice reads which tools the model has to call: a mode, a tool, or a mode for some of the tools.
func (p *parser) choice() services.ToolChoice {
	raw := p.members["tool_choice"]
	if message.IsNull(raw) {
		return services.ToolChoice{}
	}
	var mode string
	var named struct{ Type, Name, Mode string }
	switch {
	case json.Unmarshal(raw, &mode) == nil:
		named.Mode = mode
	case json.Unmarshal(raw, &named) != nil || named.Type == "":
		p.refuse("invalid_type", "tool_choice", "Invalid type for 'tool_choice': expected a mode or a tool.")
		return services.ToolChoice{}
	case named.Type == services.ToolFunction || named.Type == services.ToolCustom:
		if named.Name == "" {
			p.refuse("missing_required_parameter", "tool_choice.name", "'tool_choice.name' is required.")
		}
		return services.ToolChoice{Mode: services.ToolNamed, Tool: named.Name, Raw: raw}
	}
	switch m := services.ToolMode(named.Mode); m {
	case services.ToolAuto, services.ToolNone, services.ToolRequired:
		return services.ToolChoice{Mode: m, Raw: raw}
	case services.ToolNamed, "":
	}
	if mode != "" {
		p.refuse("invalid_value", "tool_choice", "'tool_choice' must be none, auto, required, or a tool.")
	}
	return services.ToolChoice{Raw: raw} // a hosted tool
}

// named is a tool that a choice names: a function or a custom tool.
type named struct{ Type, Name string }

// namedBy returns the tools that a choice names, and what else it asks for that only a hosted tool is.
func namedBy(c services.ToolChoice) (tools []named, other bool) {
	var choice struct {
		named

		Tools []named
	}
	_ = json.Unmarshal(c.Raw, &choice) // a mode names none
	all := choice.Tools
	if choice.Type != "" && choice.Type != "allowed_tools" {
		all = []named{choice.named}
	}
	for _, t := range all {
		if t.Type == services.ToolFunction || t.Type == services.ToolCustom {
			tools = append(tools, t)
			continue
		}
		other = true
	}
	return tools, other
}

// chosen refuses a choice of a tool that is not offered. Of hosted tools the model's endpoint decides.
func (p *parser) chosen(c services.ToolChoice, offered []services.ModelTool, hosted HostedTools) {
	tools, other := namedBy(c)
	for _, t := range tools {
		is := func(o services.ModelTool) bool { return o.Kind == t.Type && o.Name == t.Name }
		if !slices.ContainsFunc(offered, is) {
			p.refuse("invalid_value", "tool_choice", "'tool_choice' names a tool that 'tools' does not have.")
		}
	}
	switch {
	case other && !bool(hosted):
		p.refuse("invalid_value", "tool_choice", "'tool_choice' names a tool that 'tools' does not have.")
	case c.Mode == services.ToolRequired && len(offered) == 0:
		p.refuse("invalid_value", "tool_choice", "'tool_choice' is required, but 'tools' has no tool.")
	}
}

// allowed returns the tools that a choice of some of them leaves.
func allowed(tools []services.ModelTool, c services.ToolChoice) []services.ModelTool {
	var choice struct {
		Type  string
		Tools []struct{ Type, Name string }
	}
	if json.Unmarshal(c.Raw, &choice) != nil || choice.Type != "allowed_tools" {
		return tools
	}
	var out []services.ModelTool
	for _, t := range tools {
		for _, a := range choice.Tools {
			if a.Type == t.Kind && a.Name == t.Name {
				out = append(out, t)
				break
			}
		}
	}
	return out
}
