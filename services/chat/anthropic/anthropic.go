// Package anthropic is a client of chat models behind Anthropic's messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/endpoint"
)

// New makes a model; it does no I/O. The URL may omit the API's version.
func New(cfg endpoint.Config) chat.Model {
	base := strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1")
	client := anthropic.NewClient(
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(base), option.WithAPIKey(cfg.Key),
		option.WithHTTPClient(endpoint.Client()),
	)
	return &endpoint.Model[anthropic.MessageStreamEventUnion]{
		Config: cfg, Form: services.Anthropic, Read: read, Status: status, TooLong: tooLong,
		Open: func(ctx context.Context, p chat.Prompt) endpoint.Stream[anthropic.MessageStreamEventUnion] {
			params := paramsOf(p.ModelOptions)
			params.Model = cfg.Name
			addCalled(&params, p.Messages)
			with := []option.RequestOption{option.WithJSONSet("messages", withThoughts(params.Thinking, p.Messages))}
			if p.System != "" {
				with = append(with, option.WithJSONSet("system", p.System))
			}
			return client.Messages.NewStreaming(ctx, params, with...)
		},
	}
}

// addCalled adds a tool, with a name and no more, for each tool that the prompt's history calls. The API refuses calls
// if no tool is defined. If the caller offers no tool, the model may call none.
func addCalled(params *anthropic.MessageNewParams, messages []json.RawMessage) {
	offered := params.Tools
	for _, name := range called(messages) {
		known := func(t anthropic.ToolUnionParam) bool { return t.OfTool != nil && t.OfTool.Name == name }
		if !slices.ContainsFunc(params.Tools, known) {
			schema := anthropic.ToolInputSchemaParam{Type: "object"}
			params.Tools = append(params.Tools, anthropic.ToolUnionParamOfTool(schema, name))
		}
	}
	if len(offered) == 0 && len(params.Tools) > 0 {
		params.ToolChoice = anthropic.ToolChoiceUnionParam{OfNone: &anthropic.ToolChoiceNoneParam{}}
	}
}

// called returns the names of the tools that a history calls.
func called(messages []json.RawMessage) (names []string) {
	for _, raw := range messages {
		var m struct {
			Content []struct{ Type, Name string }
		}
		_ = json.Unmarshal(raw, &m) // a text has no blocks
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				names = append(names, b.Name)
			}
		}
	}
	return names
}

func status(err error) int {
	if refusal, ok := errors.AsType[*anthropic.Error](err); ok {
		return refusal.StatusCode
	}
	return 0
}

// tooLong reports whether the API refused a prompt for its length. It has no code for that, only words.
func tooLong(err error) bool {
	refusal, ok := errors.AsType[*anthropic.Error](err)
	return ok && strings.Contains(refusal.RawJSON(), "prompt is too long")
}

func read(e anthropic.MessageStreamEventUnion, a *endpoint.Answering) {
	switch e := e.AsAny().(type) {
	case anthropic.MessageStartEvent:
		a.Named(e.Message.Model)
		u := e.Message.Usage
		a.Use(usage(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens))
	case anthropic.ContentBlockStartEvent:
		readBlock(e, a)
	case anthropic.ContentBlockDeltaEvent:
		readDelta(e, a)
	case anthropic.ContentBlockStopEvent:
		readBlockEnd(blockKey(e.Index), a)
	case anthropic.MessageDeltaEvent:
		readEnd(e, a)
	case anthropic.MessageStopEvent:
		a.End(services.FinishStop)
	}
}

// usage counts what the API counts apart: what it read from its cache or wrote into it is part of the input, too.
func usage(input, read, written, output int64) conversation.Usage {
	return conversation.Usage{Input: input + read + written, Cached: read, Output: output}
}

func blockKey(index int64) string { return strconv.FormatInt(index, 10) }

func readBlock(e anthropic.ContentBlockStartEvent, a *endpoint.Answering) {
	b := e.ContentBlock
	switch b.Type {
	case "tool_use":
		kind := services.PartCall
		custom := func(t services.ModelTool) bool { return t.Kind == services.ToolCustom && t.Name == b.Name }
		if slices.ContainsFunc(a.Options.Tools, custom) {
			kind = services.PartCustomCall
		}
		a.Add(blockKey(e.Index), services.AnswerPart{Kind: kind, CallID: b.ID, Name: b.Name})
	case "redacted_thinking":
		a.Add(blockKey(e.Index), services.AnswerPart{
			Kind: services.PartReasoning, Item: thought("", redacted, b.Data),
		})
	}
}

// Forms of a thought's encrypted content: the signature of a block that can be read, or the data of one that can't.
// The context builder makes the blocks of a prompt from them.
const (
	signed   = "anthropic.signature:"
	redacted = "anthropic.redacted:"
)

// thought returns a block of thinking as an item, so that the API gets it back where it asks for it.
func thought(text, form, secret string) json.RawMessage {
	item := map[string]any{"type": "reasoning", "summary": []any{}, "encrypted_content": form + secret}
	if text != "" {
		item["content"] = []any{map[string]string{"type": "reasoning_text", "text": text}}
	}
	return endpoint.Item(item)
}

func readDelta(e anthropic.ContentBlockDeltaEvent, a *endpoint.Answering) {
	key := blockKey(e.Index)
	switch e.Delta.Type {
	case "text_delta":
		if e.Delta.Text != "" {
			a.Add(key, services.AnswerPart{Kind: services.PartText, Text: e.Delta.Text})
		}
	case "thinking_delta":
		a.Add(key, services.AnswerPart{Kind: services.PartReasoning, Text: e.Delta.Thinking})
	case "signature_delta":
		item := thought(a.Text(key), signed, e.Delta.Signature)
		a.Add(key, services.AnswerPart{Kind: services.PartReasoning, Item: item})
	case "input_json_delta":
		if a.Kind(key) == services.PartCustomCall {
			a.Hold(key, e.Delta.PartialJSON)
			return
		}
		a.Add(key, services.AnswerPart{Kind: services.PartCall, Text: e.Delta.PartialJSON})
	}
}

// readBlockEnd adds what is known only at the end of a block: the input of a custom tool, which is the argument of
// the tool that the API got in its place, and that a function has no arguments.
func readBlockEnd(key string, a *endpoint.Answering) {
	switch kind := a.Kind(key); {
	case kind == services.PartCustomCall:
		var arguments struct{ Input string }
		raw := a.Hold(key, "")
		if json.Unmarshal([]byte(raw), &arguments) != nil {
			arguments.Input = raw
		}
		a.Add(key, services.AnswerPart{Kind: kind, Text: arguments.Input})
	case kind == services.PartCall && a.Text(key) == "":
		a.Add(key, services.AnswerPart{Kind: kind, Text: "{}"})
	}
}

func readEnd(e anthropic.MessageDeltaEvent, a *endpoint.Answering) {
	u, used := e.Usage, a.Used()
	if u.InputTokens > 0 { // older servers tell it at the start only
		used = usage(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, 0)
	}
	used.Output, used.Reasoning = u.OutputTokens, u.OutputTokensDetails.ThinkingTokens
	a.Use(used)
	switch e.Delta.StopReason {
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		a.End(services.FinishLength)
	case anthropic.StopReasonRefusal:
		a.End(services.FinishFiltered)
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence, anthropic.StopReasonToolUse,
		anthropic.StopReasonPauseTurn: // the end of the stream decides
	}
}
