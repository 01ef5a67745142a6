package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read/search"
)

func TestMain(m *testing.M) {
	if seed, err := strconv.ParseUint(os.Getenv(slowSeed), 10, 64); err == nil {
		os.Exit(runSlowly(seed))
	}
	stack.Main(m)
}

// slowSeed names the variable that makes this program turnledger itself, with a slow log.
const slowSeed = "TURNLEDGER_TEST_SLOW_SEED"

// runSlowly is main with a log that is slow from the first SIGUSR1 on, until the next.
func runSlowly(seed uint64) int {
	log := &slowLog{rng: rand.New(rand.NewPCG(seed, 15)), to: os.Stderr}
	turns := make(chan os.Signal, 1)
	signal.Notify(turns, syscall.SIGUSR1)
	go func() {
		for range turns {
			log.slow.Store(!log.slow.Load())
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, os.Args[1:], io.Discard, log)
}

// A small heap gets the least room, and a large one 35 % of what is live.
func TestGCPercent(t *testing.T) {
	t.Parallel()
	require.Equal(t, 100, gcPercent(0))
	for live, room := range map[uint64]uint64{
		8 << 20: 256 << 20, 64 << 20: 256 << 20, 192 << 20: 256 << 20, 448 << 20: 256 << 20, 469 << 20: 235 << 20,
		560 << 20: 196 << 20, 960 << 20: 336 << 20, 5 << 30: 1792 << 20,
	} {
		got := live * uint64(gcPercent(live)) / 100
		require.InEpsilon(t, room, got, 0.01, "live: %d", live)
	}
	require.Equal(t, 10_000, gcPercent(1), "it has a bound")
}

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
		Usage: &session.Usage{Input: 7, Output: 3},
	}, k.err
}

// sessionless is a reader that knows no session.
type sessionless struct{ contextbuilder.Sessions }

func (sessionless) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	return services.Reading{State: session.New(ask.SessionID, session.Rules{})}, nil
}

// TestStepsAreSpansAndMeasuresWithoutText: each is a span below its request's, or below the prompt's.
//
//conformance:o81
func TestStepsAreSpansAndMeasuresWithoutText(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	traces := trace.NewTracerProvider(trace.WithSyncer(seen))
	registry := prometheus.NewRegistry()
	s, measures := httpwire.NewSteps(registry, traces), answer.NewMeasures(registry, "openai")
	ctx, request := traces.Tracer("test").Start(t.Context(), "request")
	ctx = context.WithValue(ctx, access.CallKey{}, &access.Call{Steps: s})
	prompt := services.ContextRequest{SessionID: "s", Message: "secret", History: []json.RawMessage{}, Memory: true,
		Rewrite: true, IdentityID: "secret"}
	for _, k := range []textSteps{{}, {errors.New("a secret of its own")}} {
		b := contextbuilder.NewBuilder(sessionless{}, contextbuilder.Config{Memory: k, Rewriter: k})
		must.Get(b.Build(ctx, prompt))(t)
		_, _ = answer.SteppedModel{Model: k, Measures: measures}.Answer(ctx, services.Prompt{
			System: "secret", Conversation: "s-1",
			ModelOptions: services.ModelOptions{Tools: []services.ModelTool{{Kind: "function", Name: "secret"}}},
		}, func(services.AnswerPiece) {})
		must.Fail(search.Stepped{Searcher: k}.Search(ctx,
			services.SearchAsk{SearchFilter: projections.SearchFilter{Query: "secret"}}))(t, k.err)
	}
	wrong := textSteps{&decide.Invalid{Field: "query", Why: "is a secret"}}
	must.Fail(search.Stepped{Searcher: wrong}.Search(ctx, services.SearchAsk{}))(t, wrong.err)
	var got []string
	spans := seen.GetSpans()
	for i, span := range spans {
		parent := request.SpanContext().SpanID()
		if below := slices.Index([]string{"rewriter", "memory"}, span.Name); below >= 0 {
			parent = spans[i+below+1].SpanContext.SpanID()
		}
		require.Equal(t, parent, span.Parent.SpanID(), span.Name)
		got = append(got, fmt.Sprint(span.Name, " ", span.Status.Code, " ", len(span.Events)))
		if span.Name == "model" {
			requireModelAttributes(t, span.Attributes)
		}
	}
	require.Equal(t, []string{"memory Unset 0", "rewriter Unset 0", "prompt Unset 0", "model Unset 1",
		"search_words Unset 0", "memory Error 0", "rewriter Error 0", "prompt Unset 0", "model Error 1",
		"search_words Error 0", "search_words Unset 0"}, got)
	require.NotContains(t, fmt.Sprint(seen.GetSpans()), "secret")
	n := must.Get(testutil.GatherAndCount(registry, "turnledger_step_duration_seconds"))(t)
	require.Equal(t, 10, n, "two of each, the prompt, and the first words")
	gathered := must.Get(registry.Gather())(t)
	require.NotContains(t, fmt.Sprint(gathered), "secret")
	require.Contains(t, fmt.Sprint(gathered), `search_words`)
	for name, want := range map[string]int{
		"gen_ai_client_token_usage":                2, // input and output
		"gen_ai_client_operation_duration_seconds": 2, // ok and failed
	} {
		require.Equal(t, want, must.Get(testutil.GatherAndCount(registry, name))(t), name)
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

// A port that another process takes between the look at it and the start is not wrong use, if nobody asked for it.
func TestAListenerOnlyIfThePortIsFree(t *testing.T) {
	t.Parallel()
	taken := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = taken.Close() })
	cfg := config.Config{
		DataDir: t.TempDir(), Sync: string(embedded.Always), Partitions: 1, Replicas: 1,
		NATSListen: taken.Addr().String(),
	}
	must.Fail(openStore(t.Context(), cfg, slog.New(slog.DiscardHandler)))(t, config.ErrUsage)
	cfg.NATSIfFree = true
	s := must.Get(openStore(t.Context(), cfg, slog.New(slog.DiscardHandler)))(t)
	require.Empty(t, s.Server.URL())
	s.Close()
}

// During an outage each job fails for the same cause, and one line a minute says so; other causes, other messages and
// other views have lines of their own.
//
//conformance:l11
func TestAWarningIsWrittenOncePerCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, all bytes.Buffer
		quiet := slog.New(newOncePerCause(slog.NewTextHandler(&out, nil)))
		verbose := slog.New(newOncePerCause(slog.NewTextHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug})))
		lines := func() []string {
			defer out.Reset()
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		away := func() error { return fmt.Errorf("append: %w", errors.New("the log is unavailable")) }
		for n := range 1_000 {
			for _, log := range []*slog.Logger{quiet.With("session_id", n), verbose} {
				log.Warn("an erasure is tried again", "attempt", n, "err", away())
			}
		}
		require.Len(t, lines(), 1)
		require.Equal(t, 1, strings.Count(all.String(), "level=WARN"))
		require.Equal(t, 999, strings.Count(all.String(), "level=DEBUG"))

		quiet.Warn("an erasure is tried again", "err", errors.New("another cause"))
		quiet.Warn("a batch is tried again", "projection", "audit", "err", away())
		quiet.Warn("a batch is tried again", "projection", "recent", "err", away())
		require.Len(t, lines(), 3)
		for range 2 {
			quiet.Error("a view has failed", "err", away())
			quiet.Warn("request", "err", "the log is unavailable")
		}
		require.Len(t, lines(), 4, "errors and requests are written each time")

		<-time.After(time.Minute)
		quiet.Warn("an erasure is tried again", "err", away())
		got := lines()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "times_before=1000")
	})
}
