// Package openai is a chat model behind an OpenAI-compatible endpoint.
package openai

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/silence"
)

// Config of a Model.
type Config struct {
	// URL of the API, up to and with its version: https://api.openai.com/v1.
	URL string
	// Key may be empty.
	Key string
	// Name of the model.
	Name string
	// Idle ends an answer that has been silent for so long; 30 s by default.
	Idle time.Duration
}

// Model implements chat.Model.
type Model struct {
	cfg    Config
	client openai.Client
}

var _ chat.Model = (*Model)(nil)

// New makes a model; it does no I/O.
func New(cfg Config) *Model {
	return &Model{cfg: cfg, client: openai.NewClient(option.WithBaseURL(cfg.URL), option.WithAPIKey(cfg.Key))}
}

// Name implements chat.Model.
func (m *Model) Name() string { return m.cfg.Name }

// Format implements chat.Model.
func (m *Model) Format() string { return "openai" }

// Answer implements chat.Model. The messages are sent as they are.
func (m *Model) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, error) {
	ctx, heard, end := silence.Watch(ctx, m.cfg.Idle)
	defer end()
	stream := m.client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: m.cfg.Name}, option.WithJSONSet("messages", p.Messages))
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	ended := false
	for stream.Next() {
		heard()
		for _, choice := range stream.Current().Choices {
			if choice.Index != 0 {
				continue
			}
			if piece := choice.Delta.Content; piece != "" {
				text.WriteString(piece)
				emit(piece)
			}
			ended = ended || choice.FinishReason != ""
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
