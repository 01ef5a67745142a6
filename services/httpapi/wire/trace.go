package wire

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// begin opens the span of a request, below that of its caller.
func (a *API) begin(r *http.Request) (context.Context, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
}

// trace puts into the span what the log line has: ids, numbers and codes, never a text.
func (c *Call) trace(route string, status int) {
	span := trace.SpanFromContext(c)
	if !span.IsRecording() {
		return
	}
	span.SetName(route)
	set := []attribute.KeyValue{
		attribute.String("http.route", route), attribute.Int("http.response.status_code", status),
	}
	for _, n := range c.notes {
		set = append(set, attributeOf("turnledger."+n.key, plain(n.value)))
	}
	span.SetAttributes(set...)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, c.surface.Tell(c.err))
	}
}

func attributeOf(key string, value any) attribute.KeyValue {
	switch v := value.(type) {
	case int:
		return attribute.Int(key, v)
	case bool:
		return attribute.Bool(key, v)
	default:
		return attribute.String(key, fmt.Sprint(v))
	}
}
