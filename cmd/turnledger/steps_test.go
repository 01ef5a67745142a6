package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read/search"
)

// textSteps is a memory, a rewriter and a model whose answers and errors are texts.
type textSteps struct{ err error }

func (k textSteps) Snippet(context.Context, services.MemoryQuery) (services.MemorySnippet, error) {
	return services.MemorySnippet{Text: "secret"}, k.err
}

func (k textSteps) Rewrite(context.Context, string, []message.Message, string) (string, error) {
	return "secret", k.err
}

func (k textSteps) Search(context.Context, services.SearchAsk) (services.SearchPage, error) {
	return services.SearchPage{Hits: []projections.Hit{{Snippet: "secret"}}}, k.err
}

func (textSteps) Name() string { return "m" }

func (textSteps) Format() services.Format { return services.OpenAI }

func (k textSteps) Answer(
	_ context.Context, _ services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	part := services.AnswerPart{Kind: services.PartText, Text: "secret", CallID: "secret", Name: "secret"}
	emit(services.AnswerPiece{AnswerPart: part})
	emit(services.AnswerPiece{AnswerPart: part})
	return services.ModelAnswer{
		Parts: []services.AnswerPart{part}, Finish: services.FinishStop, Model: "small",
		Usage: &conversation.Usage{Input: 7, Output: 3},
	}, k.err
}

// TestStepsAreSpansAndMeasuresWithoutText: each is a span below its request's.
//
//conformance:o81
func TestStepsAreSpansAndMeasuresWithoutText(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	traces := trace.NewTracerProvider(trace.WithSyncer(seen))
	registry := prometheus.NewRegistry()
	s, measures := httpwire.NewSteps(registry, traces), answer.NewMeasures(registry, "openai")
	ctx, request := traces.Tracer("test").Start(t.Context(), "request")
	for _, k := range []textSteps{{}, {errors.New("a secret of its own")}} {
		_, _ = contextbuilder.SteppedMemory{Memory: k, Steps: s}.Snippet(ctx, services.MemoryQuery{Message: "secret"})
		_, _ = contextbuilder.SteppedRewriter{Rewriter: k, Steps: s}.Rewrite(ctx, "secret", nil, "secret")
		_, _ = answer.SteppedModel{Model: k, Steps: s, Measures: measures}.Answer(ctx, services.Prompt{
			System: "secret", Conversation: "s-1",
			ModelOptions: services.ModelOptions{Tools: []services.ModelTool{{Kind: "function", Name: "secret"}}},
		}, func(services.AnswerPiece) {})
		_, err := search.Stepped{Searcher: k, Steps: s}.Search(ctx,
			services.SearchAsk{SearchFilter: projections.SearchFilter{Query: "secret"}})
		require.ErrorIs(t, err, k.err)
	}
	wrong := textSteps{&conversation.Invalid{Field: "query", Why: "is a secret"}}
	_, err := search.Stepped{Searcher: wrong, Steps: s}.Search(ctx, services.SearchAsk{})
	require.ErrorIs(t, err, wrong.err)
	var got []string
	for _, span := range seen.GetSpans() {
		require.Equal(t, request.SpanContext().SpanID(), span.Parent.SpanID())
		got = append(got, fmt.Sprint(span.Name, " ", span.Status.Code, " ", len(span.Events)))
		if span.Name == "model" {
			requireModelAttributes(t, span.Attributes)
		}
	}
	require.Equal(t, []string{"memory Unset 0", "rewriter Unset 0", "model Unset 1", "search_words Unset 0",
		"memory Error 0", "rewriter Error 0", "model Error 1", "search_words Error 0", "search_words Unset 0"}, got)
	require.NotContains(t, fmt.Sprint(seen.GetSpans()), "secret")
	n, err := testutil.GatherAndCount(registry, "turnledger_step_duration_seconds")
	require.NoError(t, err)
	require.Equal(t, 9, n, "two of each, and the first words")
	gathered, err := registry.Gather()
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(gathered), "secret")
	require.Contains(t, fmt.Sprint(gathered), `search_words`)
	for name, want := range map[string]int{
		"gen_ai_client_token_usage":                2, // input and output
		"gen_ai_client_operation_duration_seconds": 2, // ok and failed
	} {
		n, err := testutil.GatherAndCount(registry, name)
		require.NoError(t, err)
		require.Equal(t, want, n, name)
	}
}

// requireModelAttributes: a call of the model tells what OpenTelemetry's conventions name, and nothing else.
func requireModelAttributes(t *testing.T, attributes []attribute.KeyValue) {
	t.Helper()
	got := map[string]string{}
	for _, a := range attributes {
		got[string(a.Key)] = a.Value.String()
	}
	require.Equal(t, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.conversation.id": "s-1",
		"gen_ai.request.model": "m", "gen_ai.response.model": "small", "gen_ai.response.finish_reasons": `["stop"]`,
		"gen_ai.usage.input_tokens": "7", "gen_ai.usage.output_tokens": "3",
	}, got)
}
