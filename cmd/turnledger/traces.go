package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// openTraces sends spans where OpenTelemetry's own environment says
// (OTEL_EXPORTER_OTLP_ENDPOINT); nil where it says nothing.
func openTraces(ctx context.Context) (*trace.TracerProvider, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil //nolint:nilnil // no traces is a valid answer
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the traces: %w (is OTEL_EXPORTER_OTLP_ENDPOINT right?)", err)
	}
	of := resource.NewSchemaless(attribute.String("service.name", "turnledger"), attribute.String("service.version", version))
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(of)), nil
}
