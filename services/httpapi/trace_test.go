package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi"
)

func TestARequestIsOneSpanWithoutText(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	s := start(t, func(c *httpapi.Config, _ *history.Config, _ *contextbuilder.ReaderConfig) {
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
		"http.route": "POST /v1/sessions/{session_id}/context", "http.response.status_code": "200", "turnledger.session_id": "s", "turnledger.position": "0:2",
		"turnledger.source": "log", "turnledger.turns": "1", "turnledger.found": "true", "turnledger.window": "2", "turnledger.dropped": "0",
	}, got)
	require.NotContains(t, fmt.Sprint(spans), "secret")
}
