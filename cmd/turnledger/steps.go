package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/httpapi"
)

// steps makes the parts of a request known that take their time: each is a span below
// the request's, a measure, and a duration in the request's log line. None has a text.
type steps struct {
	tracer trace.Tracer
	took   *prometheus.HistogramVec
}

// newSteps makes steps, whose spans go to traces.
func newSteps(registry prometheus.Registerer, traces trace.TracerProvider) *steps {
	s := &steps{tracer: traces.Tracer("turnledger"), took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "turnledger", Subsystem: "step", Name: "duration_seconds",
		Help:    "Time of what a prompt or an answer asks of others, by step (prompt, memory, rewriter, model, first_word) and result (ok, failed).",
		Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .3, 1, 3, 10, 30, 120},
	}, []string{"step", "result"})}
	registry.MustRegister(s.took)
	return s
}

// begin opens a step, which end closes.
func (s *steps) begin(ctx context.Context, step string) (inside context.Context, end func(error)) {
	began := time.Now()
	inside, span := s.tracer.Start(ctx, step)
	return inside, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "failed")
		}
		span.End()
		s.note(ctx, step, time.Since(began), err)
	}
}

func (s *steps) note(ctx context.Context, step string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	s.took.WithLabelValues(step, result).Observe(took.Seconds())
	httpapi.Took(ctx, step, took)
}

type steppedBuilder struct {
	chat.Contexts
	steps *steps
}

func (b steppedBuilder) Build(ctx context.Context, req services.ContextRequest) (services.Context, error) {
	ctx, end := b.steps.begin(ctx, "prompt")
	r, err := b.Contexts.Build(ctx, req)
	end(err)
	return r, err
}

type steppedMemory struct {
	services.Memory
	steps *steps
}

func (m steppedMemory) Snippet(ctx context.Context, q services.MemoryQuery) (string, error) {
	ctx, end := m.steps.begin(ctx, "memory")
	text, err := m.Memory.Snippet(ctx, q)
	end(err)
	return text, err
}

type steppedRewriter struct {
	contextbuilder.Rewriter
	steps *steps
}

func (r steppedRewriter) Rewrite(ctx context.Context, message string, history []contextbuilder.Message, memorySnippet string) (string, error) {
	ctx, end := r.steps.begin(ctx, "rewriter")
	text, err := r.Rewriter.Rewrite(ctx, message, history, memorySnippet)
	end(err)
	return text, err
}

type steppedModel struct {
	chat.Model
	steps *steps
}

func (m steppedModel) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, services.Finish, error) {
	began, first := time.Now(), true
	inside, end := m.steps.begin(ctx, "model")
	text, why, err := m.Model.Answer(inside, p, func(piece string) {
		if first {
			first = false
			trace.SpanFromContext(inside).AddEvent("first_word")
			m.steps.note(ctx, "first_word", time.Since(began), nil)
		}
		emit(piece)
	})
	end(err)
	return text, why, err
}
