// Package openai is a chat model behind an OpenAI-compatible endpoint.
package openai

import (
	"context"
	"errors"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/endpoint"
)

// Model implements chat.Model.
type Model struct {
	cfg    endpoint.Config
	client openai.Client
}

var _ chat.Model = (*Model)(nil)

// New makes a model; it does no I/O.
func New(cfg endpoint.Config) *Model {
	return &Model{cfg, openai.NewClient(
		option.WithBaseURL(cfg.URL), option.WithAPIKey(cfg.Key), option.WithHTTPClient(endpoint.Client()),
	)}
}

// Name implements chat.Model.
func (m *Model) Name() string { return m.cfg.Name }

// Format implements chat.Model.
func (m *Model) Format() services.Format { return services.OpenAI }

// Answer implements chat.Model. The messages are sent as they are.
func (m *Model) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, services.Finish, error) {
	open := func(ctx context.Context) endpoint.Stream[openai.ChatCompletionChunk] {
		return m.client.Chat.Completions.NewStreaming(
			ctx, openai.ChatCompletionNewParams{Model: m.cfg.Name}, option.WithJSONSet("messages", p.Messages),
		)
	}
	return endpoint.Call[openai.ChatCompletionChunk]{
		Open: open, Read: read, Status: status,
	}.Answer(ctx, m.cfg.Idle, emit)
}

func status(err error) int {
	var refusal *openai.Error
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.StatusCode
}

// read takes the first choice; nobody asked for more. A refusal is what the user is told.
func read(chunk openai.ChatCompletionChunk) (piece string, why services.Finish) {
	for _, choice := range chunk.Choices {
		if choice.Index == 0 {
			piece += choice.Delta.Content + choice.Delta.Refusal
			why = services.Finish(choice.FinishReason)
			if why != "" && why != services.FinishLength && why != services.FinishFiltered {
				why = services.FinishStop
			}
		}
	}
	return piece, why
}
