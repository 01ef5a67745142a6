package wire

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services/access"
)

// Steps measures the slow parts of a request. Each step is a span below the request's span, a sample of a metric, and a
// duration in the request's log line. None holds a text from a client.
type Steps struct {
	tracer    trace.Tracer
	durations *prometheus.HistogramVec
}

// NewSteps makes steps, whose spans go to traces.
func NewSteps(registry prometheus.Registerer, traces trace.TracerProvider) *Steps {
	s := &Steps{tracer: traces.Tracer("turnledger"), durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "turnledger", Subsystem: "step", Name: "duration_seconds",
		Help: "Time of what a prompt, an answer or a search asks of others, " +
			"by step (prompt, memory, rewriter, model, first_word, search_words) and result (ok, failed).",
		Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .3, 1, 3, 10, 30, 120},
	}, []string{"step", "result"})}
	registry.MustRegister(s.durations)
	return s
}

// Step does something as a step of the request.
func (s *Steps) Step(ctx context.Context, name string, do func(context.Context) error) error {
	began := time.Now()
	inside, span := s.tracer.Start(ctx, name)
	err := do(inside)
	if err != nil {
		span.SetStatus(codes.Error, "failed")
	}
	span.End()
	s.Record(ctx, name, time.Since(began), err)
	return err
}

// Record records a step that has no span of its own.
func (s *Steps) Record(ctx context.Context, name string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	s.durations.WithLabelValues(name, result).Observe(took.Seconds())
	if c := CallOf(ctx); access.CallOf(ctx) == &c.Call { // else the call's line may have been written
		c.steps = append(c.steps, name+"_duration", took)
	}
}
