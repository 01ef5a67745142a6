// Package anthropic is a client of chat models behind Anthropic's messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/endpoint"
)

// longest is the most tokens that an answer may have; the API requires a bound.
const longest = 4096

// New makes a model; it does no I/O. The URL may omit the API's version.
func New(cfg endpoint.Config) chat.Model {
	base := strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1")
	client := anthropic.NewClient(
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(base), option.WithAPIKey(cfg.Key),
		option.WithHTTPClient(endpoint.Client()),
	)
	return &endpoint.Model[anthropic.MessageStreamEventUnion]{
		Config: cfg, Form: services.Anthropic, Read: read, Status: status,
		Open: func(ctx context.Context, p chat.Prompt) endpoint.Stream[anthropic.MessageStreamEventUnion] {
			with := []option.RequestOption{option.WithJSONSet("messages", p.Messages)}
			if p.System != "" {
				with = append(with, option.WithJSONSet("system", p.System))
			}
			params := anthropic.MessageNewParams{Model: cfg.Name, MaxTokens: longest}
			if params.Tools = toolsOf(p.Messages); len(params.Tools) > 0 {
				params.ToolChoice.OfNone = &anthropic.ToolChoiceNoneParam{}
			}
			return client.Messages.NewStreaming(ctx, params, with...)
		},
	}
}

// toolsOf returns a tool, with a name and no more, for each tool that the prompt's history calls. The API refuses calls
// if no tool is defined.
func toolsOf(messages []json.RawMessage) (called []anthropic.ToolUnionParam) {
	known := map[string]bool{}
	for _, raw := range messages {
		var m struct {
			Content []struct{ Type, Name string }
		}
		_ = json.Unmarshal(raw, &m) // a text has no blocks
		for _, b := range m.Content {
			if b.Type == "tool_use" && !known[b.Name] {
				known[b.Name] = true
				schema := anthropic.ToolInputSchemaParam{Type: "object"}
				called = append(called, anthropic.ToolUnionParamOfTool(schema, b.Name))
			}
		}
	}
	return called
}

func status(err error) int {
	if refusal, ok := errors.AsType[*anthropic.Error](err); ok {
		return refusal.StatusCode
	}
	return 0
}

func read(e anthropic.MessageStreamEventUnion) (piece string, why services.Finish) {
	switch e := e.AsAny().(type) {
	case anthropic.ContentBlockDeltaEvent:
		if e.Delta.Type == "text_delta" {
			piece = e.Delta.Text
		}
	case anthropic.MessageDeltaEvent:
		switch e.Delta.StopReason {
		case anthropic.StopReasonMaxTokens, "model_context_window_exceeded":
			why = services.FinishLength
		case anthropic.StopReasonRefusal:
			why = services.FinishFiltered
		default: // the end of the stream decides
		}
	case anthropic.MessageStopEvent:
		why = services.FinishStop
	}
	return piece, why
}
