package httpapi

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// begin opens the span of a request, below that of its caller.
func (a *API) begin(r *http.Request) (*http.Request, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := a.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), span
}

// trace gives the span what the log line has: ids, numbers and codes, never a text.
func (c *call) trace(route string, status int) {
	span := trace.SpanFromContext(c)
	if !span.IsRecording() {
		return
	}
	span.SetName(route)
	set := []attribute.KeyValue{
		attribute.String("http.route", route), attribute.Int("http.response.status_code", status),
	}
	if c.session != "" {
		set = append(set, attribute.String("turnledger.session_id", c.session))
	}
	if c.position.Seq > 0 {
		set = append(set, attribute.String("turnledger.position", c.position.String()))
	}
	if c.from != "" {
		set = append(set, attribute.String("turnledger.source", string(c.from)))
	}
	if p := c.prompt; p != nil {
		set = append(
			set, attribute.Int("turnledger.turns", c.turns), attribute.Bool("turnledger.found", p.found),
			attribute.Int("turnledger.window", p.window), attribute.Int("turnledger.dropped", p.dropped),
		)
	}
	span.SetAttributes(set...)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, tellable(c.err))
	}
}
