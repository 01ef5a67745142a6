// Package anthropic is a chat model behind Anthropic's messages API.
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

// longest is how many tokens an answer may have, which the API wants to be told.
const longest = 4096

// Model implements chat.Model.
type Model struct {
	cfg    endpoint.Config
	client anthropic.Client
}

var _ chat.Model = (*Model)(nil)

// New makes a model; it does no I/O. The URL may be without its version.
func New(cfg endpoint.Config) *Model {
	base := strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1")
	return &Model{cfg, anthropic.NewClient(
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(base), option.WithAPIKey(cfg.Key),
		option.WithHTTPClient(endpoint.Client()),
	)}
}

// Name implements chat.Model.
func (m *Model) Name() string { return m.cfg.Name }

// Format implements chat.Model.
func (m *Model) Format() services.Format { return services.Anthropic }

// Answer implements chat.Model. The messages are sent as they are.
func (m *Model) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, services.Finish, error) {
	with := []option.RequestOption{option.WithJSONSet("messages", p.Messages)}
	if p.System != "" {
		with = append(with, option.WithJSONSet("system", json.RawMessage(quoted(p.System))))
	}
	params := anthropic.MessageNewParams{Model: m.cfg.Name, MaxTokens: longest}
	if called := toolsOf(p.Messages); len(called) > 0 {
		params.Tools, params.ToolChoice = called, anthropic.ToolChoiceUnionParam{
			OfNone: &anthropic.ToolChoiceNoneParam{},
		}
	}
	open := func(ctx context.Context) endpoint.Stream[anthropic.MessageStreamEventUnion] {
		return m.client.Messages.NewStreaming(ctx, params, with...)
	}
	return endpoint.Call[anthropic.MessageStreamEventUnion]{
		Open: open, Read: read, Status: status,
	}.Answer(ctx, m.cfg.Idle, emit)
}

// toolsOf gives the tools that the history of a prompt calls, by name alone: the API refuses
// calls of tools where none is defined.
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
				called = append(
					called, anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Type: "object"}, b.Name),
				)
			}
		}
	}
	return called
}

func status(err error) int {
	var refusal *anthropic.Error
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.StatusCode
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
		default: // the end of the stream tells
		}
	case anthropic.MessageStopEvent:
		why = services.FinishStop
	}
	return piece, why
}

func quoted(s string) []byte {
	raw, _ := json.Marshal(s) // a string always can be
	return raw
}
