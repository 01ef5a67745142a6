package answer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnledger/turnledger/services"
)

// Measures are the metrics and the attributes of spans that OpenTelemetry's conventions name for calls of a model. None
// holds a text of a prompt or an answer, or a name that a client chose.
type Measures struct {
	provider string
	tokens   *prometheus.HistogramVec
	took     *prometheus.HistogramVec
}

// NewMeasures makes measures of a provider's models; provider is a name of the conventions.
func NewMeasures(registry prometheus.Registerer, provider string) *Measures {
	m := &Measures{
		provider: provider,
		tokens: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gen_ai_client_token_usage",
			Help: "Tokens that calls of the chat model used, by type (input, output), as the endpoint counted them.",
			// The conventions' buckets.
			Buckets: prometheus.ExponentialBuckets(1, 4, 14),
		}, []string{
			"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type",
		}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gen_ai_client_operation_duration_seconds",
			Help:    "Time of calls of the chat model; error_type is failed where one failed, else empty.",
			Buckets: prometheus.ExponentialBuckets(.01, 2, 14),
		}, []string{"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"}),
	}
	registry.MustRegister(m.tokens, m.took)
	return m
}

// operation is the conventions' name for a call of a chat model.
const operation = "chat"

// used is what one call of a model used.
type used struct {
	model, conversation string
	answer              services.ModelAnswer
	took                time.Duration
	err                 error
}

func (m *Measures) note(span trace.Span, u used) {
	failed := ""
	if u.err != nil {
		failed = "failed"
	}
	m.took.WithLabelValues(operation, m.provider, u.model, failed).Observe(u.took.Seconds())
	span.SetAttributes(
		semconv.GenAIOperationNameKey.String(operation), semconv.GenAIProviderNameKey.String(m.provider),
		semconv.GenAIRequestModel(u.model),
	)
	if u.conversation != "" {
		span.SetAttributes(semconv.GenAIConversationID(u.conversation))
	}
	if name := u.answer.Model; name != "" {
		span.SetAttributes(semconv.GenAIResponseModel(name))
	}
	if why := u.answer.Finish; why != "" {
		span.SetAttributes(semconv.GenAIResponseFinishReasons(string(why)))
	}
	if usage := u.answer.Usage; usage != nil {
		m.tokens.WithLabelValues(operation, m.provider, u.model, "input").Observe(float64(usage.Input))
		m.tokens.WithLabelValues(operation, m.provider, u.model, "output").Observe(float64(usage.Output))
		span.SetAttributes(
			semconv.GenAIUsageInputTokens(int(usage.Input)), semconv.GenAIUsageOutputTokens(int(usage.Output)),
		)
	}
}
