package anthropic

import (
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/turnledger/turnledger/services"
)

// longest is the most tokens that an answer may have unless the caller asks for another bound; the API requires one.
const longest = 4096

// paramsOf returns a request with what a caller asks of an answer. What the API has no word for is left out:
// verbosity, and the form of an answer that is any JSON.
func paramsOf(o services.ModelOptions) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{MaxTokens: longest}
	if o.MaxTokens > 0 {
		params.MaxTokens = o.MaxTokens
	}
	if o.Temperature != nil {
		params.Temperature = anthropic.Float(min(*o.Temperature, 1)) // OpenAI's goes up to 2
	}
	if o.TopP != nil {
		params.TopP = anthropic.Float(*o.TopP)
	}
	if effort, asked := efforts[o.Effort]; asked {
		params.OutputConfig.Effort = effort
		params.Thinking.OfAdaptive = &anthropic.ThinkingConfigAdaptiveParam{}
		if o.Summary != "" {
			params.Thinking.OfAdaptive.Display = "summarized"
		}
	}
	if o.Format.Kind == "json_schema" {
		params.OutputConfig.Format.Schema = schema(o.Format.Schema)
	}
	for _, t := range o.Tools {
		params.Tools = append(params.Tools, anthropic.ToolUnionParam{OfTool: tool(t)})
	}
	if len(params.Tools) > 0 {
		params.ToolChoice = choiceOf(o)
	}
	return params
}

// efforts are OpenAI's words for the effort of reasoning in the API's words. The others ask for none.
var efforts = map[string]anthropic.OutputConfigEffort{
	"low": anthropic.OutputConfigEffortLow, "medium": anthropic.OutputConfigEffortMedium,
	"high": anthropic.OutputConfigEffortHigh, "xhigh": anthropic.OutputConfigEffortXhigh,
}

func schema(raw json.RawMessage) (m map[string]any) {
	_ = json.Unmarshal(raw, &m) // the caller checked that it is an object
	return m
}

// tool returns a tool as the API defines it. The API knows no tools whose input is free text, so such a tool gets one
// argument, input.
func tool(t services.ModelTool) *anthropic.ToolParam {
	p := &anthropic.ToolParam{Name: t.Name}
	p.InputSchema.Type = "object" // a schema without a member would be left out
	if t.Description != "" {
		p.Description = anthropic.String(t.Description)
	}
	if t.Strict != nil {
		p.Strict = anthropic.Bool(*t.Strict)
	}
	if t.Kind == services.ToolCustom {
		p.InputSchema.Properties = map[string]any{"input": map[string]any{"type": "string"}}
		p.InputSchema.Required = []string{"input"}
		return p
	}
	all := schema(t.Parameters)
	p.InputSchema.Properties = all["properties"]
	for name, value := range all {
		switch name {
		case "type", "properties":
		case "required":
			list, _ := value.([]any) // another form requires none
			for _, v := range list {
				if s, isText := v.(string); isText {
					p.InputSchema.Required = append(p.InputSchema.Required, s)
				}
			}
		default:
			if p.InputSchema.ExtraFields == nil {
				p.InputSchema.ExtraFields = map[string]any{}
			}
			p.InputSchema.ExtraFields[name] = value
		}
	}
	return p
}

func choiceOf(o services.ModelOptions) (u anthropic.ToolChoiceUnionParam) {
	one := anthropic.Bool(true)
	switch o.ToolChoice.Mode {
	case services.ToolNone:
		u.OfNone = &anthropic.ToolChoiceNoneParam{}
	case services.ToolRequired:
		u.OfAny = &anthropic.ToolChoiceAnyParam{}
		if o.OneCall {
			u.OfAny.DisableParallelToolUse = one
		}
	case services.ToolNamed:
		u.OfTool = &anthropic.ToolChoiceToolParam{Name: o.ToolChoice.Tool}
		if o.OneCall {
			u.OfTool.DisableParallelToolUse = one
		}
	case services.ToolAuto, "":
		u.OfAuto = &anthropic.ToolChoiceAutoParam{}
		if o.OneCall {
			u.OfAuto.DisableParallelToolUse = one
		}
	}
	return u
}
