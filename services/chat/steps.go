package chat

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services"
)

// SteppedModel is a Model that records its answers, and the time to their first word, as tracing steps of a request.
type SteppedModel struct {
	Model
	Steps services.Steps
}

// Answer implements Model.
func (m SteppedModel) Answer(
	ctx context.Context, p Prompt, emit func(string),
) (text string, why services.Finish, err error) {
	began, first := time.Now(), true
	err = m.Steps.Step(ctx, "model", func(inside context.Context) (err error) {
		text, why, err = m.Model.Answer(inside, p, func(piece string) {
			if first {
				first = false
				trace.SpanFromContext(inside).AddEvent("first_word")
				m.Steps.Record(ctx, "first_word", time.Since(began), nil)
			}
			emit(piece)
		})
		return err
	})
	return text, why, err
}
