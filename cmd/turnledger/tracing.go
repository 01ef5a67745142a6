package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracesTo are the environment variables with the address for spans; the exporter reads them itself.
var tracesTo = []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}

// traces takes spans.
type traces struct {
	oteltrace.TracerProvider
	shutdown func(context.Context) error
}

// openTraces sends spans to the address in one of tracesTo, and drops them if none is set.
func openTraces(ctx context.Context) (*traces, error) {
	if !slices.ContainsFunc(tracesTo, func(name string) bool { return os.Getenv(name) != "" }) {
		return &traces{noop.NewTracerProvider(), func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the traces: %w (is OTEL_EXPORTER_OTLP_ENDPOINT right?)", err)
	}
	of := resource.NewSchemaless(attribute.String("service.name", "turnledger"),
		attribute.String("service.version", version))
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(of))
	return &traces{p, p.Shutdown}, nil
}

// Close sends the remaining spans, even if ctx has ended.
func (p *traces) Close(ctx context.Context, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.shutdown(ctx); err != nil {
		logger.Warn("some traces were not sent", "err", err)
	}
}
