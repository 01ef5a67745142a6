package v1_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

//conformance:i47
func TestARequestIsOneSpanWithoutText(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Traces = trace.NewTracerProvider(trace.WithSyncer(seen))
	})
	s.record("s", "r", "a secret", "an answer")
	seen.Reset()
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"another secret"}`)
	spans := seen.GetSpans()
	require.Len(t, spans, 1)
	require.Equal(t, "POST /v1/sessions/{session_id}/context", spans[0].Name)
	got := map[string]string{}
	for _, kv := range spans[0].Attributes {
		got[string(kv.Key)] = kv.Value.String()
	}
	require.Equal(t, map[string]string{
		"http.route": "POST /v1/sessions/{session_id}/context", "http.response.status_code": "200",
		"turnledger.session_id": "s", "turnledger.position": "0:2",
		"turnledger.source": "log", "turnledger.turns": "1", "turnledger.found": "true", "turnledger.window": "2",
		"turnledger.dropped": "0",
	}, got)
	require.NotContains(t, fmt.Sprint(spans), "secret")
}

// One trace leads from a caller's request through the append to the projection that
// applied the event: the event says whose request wrote it.
func TestATraceLeadsThroughTheLogToTheProjection(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	traces := trace.NewTracerProvider(trace.WithSyncer(seen))
	log := natstest.Log(t, 1)
	s := startOn(t, log, func(c *config, _ *history.Config, _ *read.Config) { c.Traces = traces })
	view := memory.New(recent.Limits{TTL: time.Hour, MaxTurns: 10}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules, Traces: traces}).Run)
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	a := s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"a secret"}`, "Traceparent", "00-"+caller+"-00f067aa0ba902b7-01")
	require.Equal(t, http.StatusCreated, a.status)

	spans := map[string]tracetest.SpanStub{}
	hang.Until(t, func() bool {
		for _, span := range seen.GetSpans() {
			spans[span.Name] = span
		}
		return len(spans) == 3
	})
	request, appended, applied := spans["POST /v1/sessions/{session_id}/turns"], spans["append"], spans["apply recent"]
	require.Equal(t, caller, request.SpanContext.TraceID().String())
	require.Equal(t, request.SpanContext.SpanID(), appended.Parent.SpanID())
	require.Len(t, applied.Links, 1)
	require.Equal(t, appended.SpanContext.SpanID(), applied.Links[0].SpanContext.SpanID())
	require.Equal(t, caller, applied.Links[0].SpanContext.TraceID().String())
	e, found, err := log.At(t.Context(), events.Position{Seq: 1})
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "00-"+caller+"-"+appended.SpanContext.SpanID().String()+"-01", e.TraceParent)
	require.NotContains(t, fmt.Sprint(seen.GetSpans()), "secret")
}
