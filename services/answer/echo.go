package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// Echo is the built-in model, for trying things out without a key: it repeats the last message, and says that it is no
// real model. Where tools are offered, it first calls one, so that a client's loop of calls and results can be tried.
type Echo struct{}

var _ services.Model = Echo{}

// Name implements Model.
func (Echo) Name() string { return "echo" }

// Format implements Model.
func (Echo) Format() services.Format { return services.OpenAI }

// Answer implements Model.
func (Echo) Answer(
	_ context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	var last message.Message
	if n := len(p.Messages); n > 0 {
		last = message.Parse(p.Messages[n-1])
	}
	if tool := called(last, p.ModelOptions); tool != nil {
		return echoCall(tool, last.Words(), emit), nil
	}
	answer := fmt.Sprintf(
		"[echo, no model is configured: set TURNLEDGER_MODEL_URL] You said: %s (%d messages before)", last.Words(),
		max(len(p.Messages)-1, 0),
	)
	for word := range strings.SplitAfterSeq(answer, " ") {
		emit(services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: word}})
	}
	part := services.AnswerPart{Kind: services.PartText, Text: answer}
	return services.ModelAnswer{Parts: []services.AnswerPart{part}, Finish: services.FinishStop}, nil
}

// called returns the tool to call: the one that the caller names, or the first, and nil after a tool's result.
func called(m message.Message, o services.ModelOptions) *services.ModelTool {
	if m.Role() == message.Tool || o.ToolChoice.Mode == services.ToolNone {
		return nil
	}
	for i, t := range o.Tools {
		callable := t.Kind == services.ToolFunction || t.Kind == services.ToolCustom
		if callable && (o.ToolChoice.Mode != services.ToolNamed || o.ToolChoice.Tool == t.Name) {
			return &o.Tools[i]
		}
	}
	return nil
}

func echoCall(t *services.ModelTool, text string, emit func(services.AnswerPiece)) services.ModelAnswer {
	part := services.AnswerPart{
		Kind: services.PartCall, Name: t.Name, CallID: "call_" + strings.ReplaceAll(uuid.NewString(), "-", ""),
	}
	arguments := exampleOf(t.Parameters, text)
	if t.Kind == services.ToolCustom {
		part.Kind, arguments = services.PartCustomCall, text
	}
	emit(services.AnswerPiece{AnswerPart: part})
	emit(services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: part.Kind, Text: arguments}})
	part.Text = arguments
	return services.ModelAnswer{Parts: []services.AnswerPart{part}, Finish: services.FinishStop}
}

// exampleOf returns arguments that fit the simple parts of a JSON schema, with text where a text is wanted.
func exampleOf(schema json.RawMessage, text string) string {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return "{}"
	}
	arguments, isObject := example(s, text, 0).(map[string]any)
	if !isObject {
		return "{}"
	}
	raw, _ := json.Marshal(arguments) // it came from JSON
	return string(raw)
}

// deepest bounds how deep an example follows a schema.
const deepest = 8

func example(schema map[string]any, text string, depth int) any {
	if value, fixed := schema["const"]; fixed {
		return value
	}
	for _, name := range []string{"enum", "examples"} {
		if list, _ := schema[name].([]any); len(list) > 0 {
			return list[0]
		}
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if list, _ := schema[name].([]any); len(list) > 0 {
			first, _ := list[0].(map[string]any)
			return example(first, text, depth)
		}
	}
	kind, _ := schema["type"].(string)
	if list, _ := schema["type"].([]any); len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "string":
		return text
	case "integer", "number":
		least, _ := schema["minimum"].(float64)
		return least
	case "boolean":
		return true
	case "array":
		return []any{}
	case "null":
		return nil
	default:
		return exampleObject(schema, text, depth)
	}
}

func exampleObject(schema map[string]any, text string, depth int) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		key, _ := name.(string)
		if inner, described := properties[key].(map[string]any); described && depth < deepest {
			out[key] = example(inner, text, depth+1)
		}
	}
	return out
}
