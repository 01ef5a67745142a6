package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
)

//conformance:i44 i45 i46 i47 i86
func TestARequestIsOneLine(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "a question", "an answer")
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/context?min_position=0:1", `{"message":"what a user wrote"}`)
	s.do("GET", "/v1/sessions/s/turns?limit=what-a-user-wrote", nil)
	s.do("GET", "/v1/what-a-user-wrote", nil)
	var got []map[string]any
	for line := range strings.Lines(s.logs.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		require.Contains(t, entry, "duration")
		if entry["source"] != nil {
			require.Contains(t, entry, "prompt_duration")
		}
		for _, varies := range []string{"duration", "prompt_duration", "time"} {
			delete(entry, varies)
		}
		got = append(got, entry)
	}
	require.Equal(t, []map[string]any{
		{"level": "DEBUG", "msg": "request", "route": "POST /v1/sessions/{session_id}/turns", "status": 201.0,
			"session_id": "s", "position": "0:1", "turns": 1.0},
		{"level": "DEBUG", "msg": "request", "route": "POST /v1/sessions/{session_id}/turns/{turn_id}/finalize",
			"status": 200.0, "session_id": "s", "position": "0:2", "turns": 1.0},
		{
			"level": "INFO", "msg": "request", "route": "POST /v1/sessions/{session_id}/context", "status": 200.0,
			"session_id": "s", "position": "0:2", "source": "log",
			"turns": 1.0, "found": true, "window": 2.0, "dropped": 0.0,
		},
		{"level": "INFO", "msg": "request", "route": "GET /v1/sessions/{session_id}/turns", "status": 422.0,
			"err": "invalid_argument: *decide.Invalid"},
		{"level": "INFO", "msg": "request", "route": "none", "status": 404.0},
	}, got)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "q", "a")
	s.do("GET", "/v1/sessions/s/turns?limit=0", nil)
	s.do("BREW", "/pot", nil)
	a := s.do("GET", "/metrics", nil)
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, string(a.raw),
		`turnledger_http_requests_total{route="POST /v1/sessions/{session_id}/turns",status="201"} 1`,
		`turnledger_http_requests_total{route="GET /v1/sessions/{session_id}/turns",status="422"} 1`,
		`turnledger_http_requests_total{route="none",status="404"} 1`,
		`turnledger_http_request_duration_seconds_count{route="POST /v1/sessions/{session_id}/turns/{turn_id}/finalize"} 1`)
}

// hangingUp is a command side whose client hangs up while it works.
type hangingUp struct {
	services.TurnWriter
	hangUp func()
	err    error
}

func (h hangingUp) StartTurn(context.Context, decide.Start) (services.Turn, error) {
	h.hangUp()
	return services.Turn{}, h.err
}

// A request that failed because its client hung up is no failure of the server, and one that failed for another reason
// is, whether or not the client is still there.
func TestClientsThatHangUpCountForThemselves(t *testing.T) {
	t.Parallel()
	for status, err := range map[string]error{
		"499": fmt.Errorf("append: %w: %w", jetlog.ErrUnavailable, context.Canceled), "503": jetlog.ErrUnavailable,
	} {
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		s := bare(t, func(c *config) { c.Turns = hangingUp{hangUp: hangUp, err: err} })
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/sessions/s/turns",
			strings.NewReader(fresh+`}`))
		answer := httptest.NewRecorder()
		s.api.ServeHTTP(answer, r)
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.Contains(t, string(s.do("GET", "/metrics", nil).raw),
			`turnledger_http_requests_total{route="POST /v1/sessions/{session_id}/turns",status="`+status+`"} 1`)
		require.Contains(t, s.logs.String(), `"status":`+status)
	}
}

// Every schema compiles, every reference leads somewhere, every call says what its
// errors look like.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.do("GET", "/openapi.json", nil)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "3.1.0", a.body["openapi"])
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, compiler.AddResource("openapi.json", a.body))
	schemas := a.body["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		must.Get(compiler.Compile("openapi.json#/components/schemas/"+name))(t, name)
	}
	require.NotContains(t, schemas, "ErrorModel")
	require.ElementsMatch(t, turnMembers, keys(schemas["Turn"].(map[string]any)["properties"].(map[string]any)))

	calls := 0
	for path, item := range a.body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			calls++
			responses := op.(map[string]any)["responses"].(map[string]any)
			for status, r := range responses {
				content, kind := r.(map[string]any)["content"].(map[string]any), "application/json"
				if path == "/v1/turns" {
					kind = "application/x-ndjson"
				}
				if status[0] != '2' {
					kind = "application/problem+json"
					require.Equal(t, "#/components/schemas/Problem",
						content[kind].(map[string]any)["schema"].(map[string]any)["$ref"])
				}
				require.Contains(t, content, kind, "%s %s %s", method, path, status)
			}
			require.Contains(t, responses, "503")
			if method != "get" && !strings.HasSuffix(path, "/retry") { // which says nothing more
				require.NotEmpty(t, op.(map[string]any)["requestBody"], path)
			}
		}
	}
	require.Equal(t, 27, calls)
}

// What the document says of bodies and answers is what they are.
//
//conformance:h8
func TestOpenAPIHoldsForRealAnswers(t *testing.T) {
	t.Parallel()
	s := start(t)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, compiler.AddResource("openapi.json", s.do("GET", "/openapi.json", nil).body))
	holds := func(name string, value any) {
		t.Helper()
		schema := must.Get(compiler.Compile("openapi.json#/components/schemas/" + name))(t)
		require.NoError(t, schema.Validate(value), name)
	}
	holds("StartBody", whole)
	holds("Turn", s.ok(http.StatusCreated, "POST", "/v1/sessions/s1/turns", whole))
	holds("Turn", s.ok(http.StatusCreated, "POST", "/v1/sessions/s2/turns", `{"request_id":"r","question_neutral":"q"}`))
	holds("Session", s.ok(http.StatusOK, "GET", "/v1/sessions/s1", nil))
	holds("Session", s.ok(http.StatusOK, "GET", "/v1/sessions/nobody", nil))
	holds("Turns", s.ok(http.StatusOK, "GET", "/v1/sessions/s1/turns?status=all", nil))
	holds("History", s.ok(http.StatusOK, "GET", "/v1/sessions/s1/history", nil))
	body := map[string]any{"message": "m", "idle_timeout": "30m", "max_messages": 4.0,
		"as_of": map[string]any{"position": "0:1"}, "conversation_history": []any{1.0, nil}}
	holds("ContextBody", body)
	holds("Context", s.ok(http.StatusOK, "POST", "/v1/sessions/s1/context", body))
	holds("Context", s.ok(http.StatusOK, "POST", "/v1/sessions/s1/context", `{"message":"m","format":"anthropic"}`))
	holds("Projections", s.ok(http.StatusOK, "GET", "/v1/projections", nil))
	holds("Problem", s.do("GET", "/v1/sessions/s1/turns?limit=0", nil).body)
	holds("Problem", s.do("GET", "/nothing", nil).body)
}

// silentChat has neither a turn, as for the system, nor an answer, as where its turn is redacted.
type silentChat struct{}

func (silentChat) Send(context.Context, services.ChatMessage, services.Listener) (services.ChatReply, error) {
	return services.ChatReply{}, nil
}

func TestOpenAPIHoldsForAChatWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := bare(t, func(c *config) { c.Chat = silentChat{} })
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, compiler.AddResource("openapi.json", s.do("GET", "/openapi.json", nil).body))
	schema := must.Get(compiler.Compile("openapi.json#/components/schemas/Chat"))(t)
	require.NoError(t, schema.Validate(s.ok(http.StatusOK, "POST", "/v1/threads/t/messages", `{"content":"c"}`)))
}

func TestTheDocsPageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	a := start(t).do("GET", "/docs", nil)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	page := string(a.raw)
	must.Lack(t, page, "http:", "https:", "<script", "src=", "@import")
	must.Contain(t, page, "/v1/sessions/{session_id}/context", "max_messages", "Idempotency-Key",
		"dropped_metadata", "turns[].status")
}

// The transport knows the nouns and the log's errors, and no other service.
func TestImports(t *testing.T) {
	t.Parallel()
	out := must.Get(exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output())(t)
	for line := range strings.Lines(string(out)) {
		pkg := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(pkg, "github.com/turnledger/turnledger/"); ok {
			// What jetlog keeps inside belongs to it.
			rest, _, _ = strings.Cut(rest, "/internal/")
			require.Contains(t, []string{
				"events", "events/decide", "events/session", "events/convoy", "events/jetlog", "events/jetlog/operate",
				"events/message", "events/pause", "events/quote", "events/room", "projections", "services",
				"services/access", "services/items", "services/problems", "services/httpapi/v1/uimessage", "services/httpapi/wire", "services/httpapi/v1",
			}, rest)

		}
	}
}

//conformance:i47
func TestARequestIsOneSpanWithoutText(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewInMemoryExporter()
	s := start(t, func(c *config) { c.Traces = trace.NewTracerProvider(trace.WithSyncer(seen)) })
	s.record("s", "r", "a secret", "an answer")
	seen.Reset()
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"another secret"}`)
	spans := seen.GetSpans()
	require.Len(t, spans, 2)
	require.Equal(t, "prompt", spans[0].Name, "a step below it")
	require.Empty(t, spans[0].Attributes)
	request := spans[1]
	require.Equal(t, "POST /v1/sessions/{session_id}/context", request.Name)
	got := map[string]string{}
	for _, kv := range request.Attributes {
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
	s := startOn(t, log, func(c *config) { c.Traces = traces })
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

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// What the server says of itself is part of the contract: a difference here is one that every client sees.
func TestTheDocumentAndItsPageAreGolden(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for path, golden := range map[string]string{"/openapi.json": "openapi.json", "/docs": "docs.html"} {
		got, name := s.do("GET", path, nil).raw, filepath.Join("testdata", golden)
		if json.Valid(got) { // one member a line: what changed can be read
			got = indented(t, got)
		}
		if *update {
			require.NoError(t, os.WriteFile(name, got, 0o600))
		}
		want := must.Get(os.ReadFile(name))(t)
		require.Equal(t, string(want), string(got), "go test -run Golden -update writes %s anew", name)
	}
}

func indented(t *testing.T, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, raw, "", " "))
	return append(out.Bytes(), '\n')
}

// The page has a section for each call of the document.
//
//conformance:c5
func TestThePageShowsEachCall(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	page := string(s.do("GET", "/docs", nil).raw)
	for path, item := range s.do("GET", "/openapi.json", nil).body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			id := op.(map[string]any)["operationId"].(string)
			require.Contains(t, page, `<section id="`+id+`">`, "%s %s", method, path)
		}
	}
}
