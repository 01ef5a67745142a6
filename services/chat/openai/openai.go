// Package openai is a client of chat models behind an OpenAI-compatible endpoint.
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

// New makes a model; it does no I/O.
func New(cfg endpoint.Config) chat.Model {
	client := openai.NewClient(
		option.WithBaseURL(cfg.URL), option.WithAPIKey(cfg.Key), option.WithHTTPClient(endpoint.Client()),
	)
	return &endpoint.Model[openai.ChatCompletionChunk]{
		Config: cfg, Form: services.OpenAI, Read: read, Status: status,
		Open: func(ctx context.Context, p chat.Prompt) endpoint.Stream[openai.ChatCompletionChunk] {
			return client.Chat.Completions.NewStreaming(
				ctx, openai.ChatCompletionNewParams{Model: cfg.Name}, option.WithJSONSet("messages", p.Messages),
			)
		},
	}
}

func status(err error) int {
	if refusal, ok := errors.AsType[*openai.Error](err); ok {
		return refusal.StatusCode
	}
	return 0
}

// read returns the first choice, since requests ask for only one. The user sees a refusal as the answer.
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
