package jetlog

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/events"
)

// traced begins the span of an append below the span of its request, and writes the span into the events, so that a
// projection that applies them can link to it. Without a request's span it begins none.
func traced(ctx context.Context, p *partition, msgs []*nats.Msg) (context.Context, func(Ack, error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, func(Ack, error) {}
	}
	tracer := parent.TracerProvider().Tracer("turnledger")
	ctx, span := tracer.Start(ctx, "append", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.destination.name", p.name), attribute.Int("turnledger.events", len(msgs))))
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, to)
	for _, m := range msgs {
		m.Header[events.HeaderTraceParent] = []string{to[events.TraceParent]}
	}
	return ctx, func(ack Ack, err error) {
		defer span.End()
		switch {
		case errors.Is(err, ErrConflict): // no failure: the caller reads the event that came first, and decides again
			span.SetAttributes(attribute.Bool("turnledger.conflict", true))
		case err != nil:
			span.SetStatus(codes.Error, "not appended")
		default:
			span.SetAttributes(attribute.String("turnledger.position", ack.Position.String()),
				attribute.Bool("turnledger.duplicate", ack.Duplicate))
		}
	}
}
