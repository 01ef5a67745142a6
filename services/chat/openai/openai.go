// Package openai is a client of chat models behind an OpenAI-compatible endpoint.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
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
		Config: cfg, Form: services.OpenAI, Read: read, Status: Status, TooLong: TooLong,
		Open: func(ctx context.Context, p chat.Prompt) endpoint.Stream[openai.ChatCompletionChunk] {
			with := append(optionsOf(p.ModelOptions), option.WithJSONSet("messages", message.Chat(message.ParseAll(p.Messages))))
			return client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
				Model:         cfg.Name,
				StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
			}, with...)
		},
	}
}

// Status returns the HTTP status if an error is a refusal by the endpoint, else 0.
func Status(err error) int {
	if refusal, ok := errors.AsType[*openai.Error](err); ok {
		return refusal.StatusCode
	}
	return 0
}

// TooLong reports whether an endpoint refused a prompt for its length: by OpenAI's code, by llama.cpp's type, or in the
// words of vLLM and others, which have no code for it.
func TooLong(err error) bool {
	refusal, ok := errors.AsType[*openai.Error](err)
	return ok && (refusal.Code == "context_length_exceeded" || refusal.Type == "exceed_context_size_error" ||
		strings.Contains(refusal.Message, "maximum context length"))
}

// read reads the first choice, since requests ask for only one.
func read(chunk openai.ChatCompletionChunk, a *endpoint.Answering) {
	if u := chunk.Usage; u.TotalTokens > 0 || u.PromptTokens > 0 {
		a.Use(conversation.Usage{
			Input: u.PromptTokens, Cached: u.PromptTokensDetails.CachedTokens,
			Output: u.CompletionTokens, Reasoning: u.CompletionTokensDetails.ReasoningTokens,
		})
	}
	a.Named(chunk.Model)
	for _, choice := range chunk.Choices {
		if choice.Index == 0 {
			readDelta(choice.Delta, a)
			a.End(finish(choice.FinishReason))
		}
	}
}

func finish(reason string) services.Finish {
	switch why := services.Finish(reason); why {
	case "", services.FinishLength, services.FinishFiltered:
		return why
	case services.FinishStop, services.FinishInterrupted:
	}
	return services.FinishStop
}

func readDelta(d openai.ChatCompletionChunkChoiceDelta, a *endpoint.Answering) {
	if thought := reasoning(d); thought != "" {
		a.AddOn(services.AnswerPart{Kind: services.PartReasoning, Text: thought})
	}
	if d.Content != "" {
		a.AddOn(services.AnswerPart{Kind: services.PartText, Text: d.Content})
	}
	if d.Refusal != "" {
		a.AddOn(services.AnswerPart{Kind: services.PartRefusal, Text: d.Refusal})
	}
	for _, c := range d.ToolCalls {
		kind, name, text := services.PartCall, c.Function.Name, c.Function.Arguments
		if c.Type == services.ToolCustom {
			var custom struct{ Name, Input string }
			_ = json.Unmarshal([]byte(c.JSON.ExtraFields["custom"].Raw()), &custom) // a piece may have only one of them
			kind, name, text = services.PartCustomCall, custom.Name, custom.Input
		}
		key := "call " + strconv.FormatInt(c.Index, 10)
		a.Add(key, services.AnswerPart{Kind: kind, Text: text, CallID: c.ID, Name: name})
	}
}

// reasoning returns what a model thinks, which OpenAI's own form of a chat does not have. Servers call it
// reasoning_content (DeepSeek, vLLM, llama.cpp) or reasoning (OpenRouter, Ollama).
func reasoning(d openai.ChatCompletionChunkChoiceDelta) (text string) {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if raw := d.JSON.ExtraFields[name].Raw(); raw != "" && text == "" {
			_ = json.Unmarshal([]byte(raw), &text) // another form is no text
		}
	}
	return text
}
