// Package anthropic is a chat model behind Anthropic's messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/silence"
)

// Config of a Model.
type Config struct {
	// URL of the API, with or without its version: https://api.anthropic.com.
	URL string
	Key string
	// Name of the model.
	Name string
	// MaxTokens of an answer, which the API wants to be told; 4,096 by default.
	MaxTokens int64
	// Idle ends an answer that has been silent for so long; 30 s by default.
	Idle time.Duration
}

// Model implements chat.Model.
type Model struct {
	cfg    Config
	client anthropic.Client
}

var _ chat.Model = (*Model)(nil)

// New makes a model; it does no I/O.
func New(cfg Config) *Model {
	if cfg.MaxTokens == 0 {
		cfg.MaxTokens = 4096
	}
	base := strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1")
	return &Model{cfg: cfg, client: anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(base), option.WithAPIKey(cfg.Key))}
}

// Name implements chat.Model.
func (m *Model) Name() string { return m.cfg.Name }

// Format implements chat.Model.
func (m *Model) Format() string { return "anthropic" }

// Answer implements chat.Model. The messages are sent as they are.
func (m *Model) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, error) {
	ctx, heard, end := silence.Watch(ctx, m.cfg.Idle)
	defer end()
	with := []option.RequestOption{option.WithJSONSet("messages", p.Messages)}
	if p.System != "" {
		with = append(with, option.WithJSONSet("system", json.RawMessage(quoted(p.System))))
	}
	stream := m.client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{Model: m.cfg.Name, MaxTokens: m.cfg.MaxTokens}, with...)
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	ended := false
	for stream.Next() {
		heard()
		switch e := stream.Current().AsAny().(type) {
		case anthropic.ContentBlockDeltaEvent:
			if piece := e.Delta.Text; e.Delta.Type == "text_delta" && piece != "" {
				text.WriteString(piece)
				emit(piece)
			}
		case anthropic.MessageStopEvent:
			ended = true
		}
	}
	switch err := stream.Err(); {
	case err != nil:
		return text.String(), errors.Join(err, context.Cause(ctx))
	case !ended:
		return text.String(), silence.ErrBroken
	default:
		return text.String(), nil
	}
}

func quoted(s string) []byte {
	raw, _ := json.Marshal(s) // a string always can be
	return raw
}
