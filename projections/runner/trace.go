package runner

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// maxLinks bounds the links of one span: a longer run links only its first events.
const maxLinks = 128

// span begins the span of a run of events, linked to the requests that wrote them. It
// names positions and counts, never a text.
func (r *Runner) span(ctx context.Context, run []projections.Judged) (context.Context, func(error)) {
	if r.cfg.Traces == nil || len(run) == 0 {
		return ctx, func(error) {}
	}
	var links []trace.Link
	for i := range run {
		if at := written(ctx, run[i].TraceParent); at.IsValid() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: at,
				Attributes: []attribute.KeyValue{attribute.String("turnledger.position", run[i].Position.String())}})
		}
	}
	name := r.proj.Name()
	ctx, s := r.cfg.Traces.Tracer("turnledger").Start(ctx, "apply "+name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(links...), trace.WithAttributes(
			attribute.String("turnledger.projection", name), attribute.Int("turnledger.events", len(run)),
			attribute.String("turnledger.position", run[len(run)-1].Position.String())))
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, "not applied")
		}
		s.End()
	}
}

// written returns the span that wrote an event, from the event's header.
func written(ctx context.Context, parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{events.TraceParent: parent})
	return trace.SpanContextFromContext(ctx)
}
