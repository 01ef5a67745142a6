package contextbuilder

import (
	"context"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// SteppedBuilder is a Builder that records each prompt as a tracing step.
type SteppedBuilder struct {
	*Builder
	Steps services.Steps
}

// Build implements services.ContextBuilder.
func (b SteppedBuilder) Build(ctx context.Context, req services.ContextRequest) (out services.Context, err error) {
	err = b.Steps.Step(ctx, "prompt", func(ctx context.Context) (err error) {
		out, err = b.Builder.Build(ctx, req)
		return err
	})
	return out, err
}

// SteppedMemory is a memory that records each snippet as a tracing step.
type SteppedMemory struct {
	services.Memory
	Steps services.Steps
}

// Snippet implements services.Memory.
func (m SteppedMemory) Snippet(
	ctx context.Context, q services.MemoryQuery,
) (out services.MemorySnippet, err error) {
	err = m.Steps.Step(ctx, "memory", func(ctx context.Context) (err error) {
		out, err = m.Memory.Snippet(ctx, q)
		return err
	})
	return out, err
}

// SteppedRewriter is a rewriter that records each rewrite as a tracing step.
type SteppedRewriter struct {
	Rewriter
	Steps services.Steps
}

// Rewrite implements Rewriter.
func (r SteppedRewriter) Rewrite(
	ctx context.Context, message string, history []message.Message, snippet string,
) (text string, err error) {
	err = r.Steps.Step(ctx, "rewriter", func(ctx context.Context) (err error) {
		text, err = r.Rewriter.Rewrite(ctx, message, history, snippet)
		return err
	})
	return text, err
}
