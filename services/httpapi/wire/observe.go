package wire

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// begin opens the span of a request, below the caller's span.
func (a *API) begin(r *http.Request) (context.Context, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
}

// trace puts the content of the log line into the span: ids, numbers and codes, never a text.
func (c *Call) trace(route string, status int) {
	span := trace.SpanFromContext(c)
	if !span.IsRecording() {
		return
	}
	span.SetName(route)
	set := []attribute.KeyValue{
		attribute.String("http.route", route), attribute.Int("http.response.status_code", status),
	}
	for _, n := range c.attributes {
		set = append(set, attributeOf("turnledger."+n.key, plain(n.value)))
	}
	span.SetAttributes(set...)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, c.surface.SafeText(c.err))
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

// metrics of the API, by route pattern. They are never by path, which holds ids.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	lines    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "turnledger", Subsystem: "http", Name: "requests_total",
			Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "turnledger", Subsystem: "http", Name: "request_duration_seconds",
			Help:    "Time until a request was answered, by route.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
	}
	m.lines = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "turnledger", Subsystem: "http", Name: "lines_total",
		Help: "Lines of requests with many turns, by the status that each was answered with.",
	}, []string{"status"})
	reg.MustRegister(m.requests, m.duration, m.lines)
	return m
}

func (m *metrics) observe(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// CountLine counts a part of a request that has an answer of its own.
func (a *API) CountLine(status int) { a.metrics.lines.WithLabelValues(strconv.Itoa(status)).Inc() }

func metricsHandler(g prometheus.Gatherer) http.HandlerFunc {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP
}
