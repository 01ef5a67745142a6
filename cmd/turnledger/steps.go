package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/contextbuilder"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// The ports whose calls are steps of a request.

type steppedBuilder struct {
	chat.Contexts
	steps *httpwire.Steps
}

func (b steppedBuilder) Build(ctx context.Context, req services.ContextRequest) (services.Context, error) {
	return httpwire.Step(ctx, b.steps, "prompt", func(ctx context.Context) (services.Context, error) {
		return b.Contexts.Build(ctx, req)
	})
}

type steppedMemory struct {
	services.Memory
	steps *httpwire.Steps
}

func (m steppedMemory) Snippet(ctx context.Context, q services.MemoryQuery) (string, error) {
	return httpwire.Step(ctx, m.steps, "memory", func(ctx context.Context) (string, error) {
		return m.Memory.Snippet(ctx, q)
	})
}

type steppedRewriter struct {
	contextbuilder.Rewriter
	steps *httpwire.Steps
}

func (r steppedRewriter) Rewrite(
	ctx context.Context, message string, history []contextbuilder.Message, snippet string,
) (string, error) {
	return httpwire.Step(ctx, r.steps, "rewriter", func(ctx context.Context) (string, error) {
		return r.Rewriter.Rewrite(ctx, message, history, snippet)
	})
}

type steppedModel struct {
	chat.Model
	steps *httpwire.Steps
}

func (m steppedModel) Answer(
	ctx context.Context, p chat.Prompt, emit func(string),
) (text string, why services.Finish, _ error) {
	began, first := time.Now(), true
	_, err := httpwire.Step(ctx, m.steps, "model", func(inside context.Context) (_ any, err error) {
		text, why, err = m.Model.Answer(inside, p, func(piece string) {
			if first {
				first = false
				trace.SpanFromContext(inside).AddEvent("first_word")
				m.steps.Note(ctx, "first_word", time.Since(began), nil)
			}
			emit(piece)
		})
		return nil, err
	})
	return text, why, err
}
