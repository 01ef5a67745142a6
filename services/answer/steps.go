package answer

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services"
)

// SteppedModel is a Model that records its answers, and the time to their first word, as tracing steps of a request,
// and what they used as OpenTelemetry's conventions for generative AI say.
type SteppedModel struct {
	services.Model
	// Measures may be nil.
	Measures *Measures
}

// Answer implements Model.
func (m SteppedModel) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (answer services.ModelAnswer, err error) {
	began, first := time.Now(), true
	err = services.Measure(ctx, "model", func(inside context.Context) (err error) {
		answer, err = m.Model.Answer(inside, p, func(piece services.AnswerPiece) {
			if first {
				first = false
				trace.SpanFromContext(inside).AddEvent("first_word")
				services.Measured(ctx, "first_word", time.Since(began))
			}
			emit(piece)
		})
		if m.Measures != nil {
			m.Measures.note(trace.SpanFromContext(inside), used{
				model: m.Name(), conversation: p.Conversation, answer: answer, took: time.Since(began), err: err,
			})
		}
		return err
	})
	return answer, err
}
