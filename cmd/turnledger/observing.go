package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/turnledger/turnledger/projections/fleet"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
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
	of := resource.NewSchemaless(attribute.String("service.name", "turnledger"),
		attribute.String("service.version", version))
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(of)), nil
}

// checks returns what /readyz probes: the log, without which nothing works; the stores of views, without which reads
// come from the log; and the issuer of tokens, without which callers with an API key are still let in.
func (a *app) checks() []httpwire.Check {
	out := []httpwire.Check{{Name: "log", Probe: a.store.ready}}
	for _, store := range a.views.Checks() {
		out = append(out, httpwire.Check{Name: store.Store, Optional: true, Probe: func(ctx context.Context) error {
			err := store.Probe(ctx)
			if not, ok := errors.AsType[*fleet.NotReady](err); ok {
				return errors.Join(httpwire.Reason(not.Reason), err)
			}
			return err
		}})
	}
	if a.callers != nil && a.callers.Issuer != nil {
		out = append(out, httpwire.Check{Name: "issuer", Optional: a.callers.Keys != nil,
			Probe: func(context.Context) error {
				if a.callers.Issuer.Ready() != nil {
					return httpwire.Reason("the issuer of tokens has not told its keys yet: " +
						"check TURNLEDGER_AUTH, and whether it answers from here")
				}
				return nil
			}})
	}
	return out
}
