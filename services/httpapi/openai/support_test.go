package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// rules are those of a deployment by default.
var rules = session.Rules{SessionTTL: 24 * time.Hour}

// stack is the native API and OpenAI's on a log.
type stack struct {
	t        testing.TB
	log      *jetlog.Log
	services servicetest.Services
	native   v1.Config
	cfg      openai.Config
	wire     wire.Config
	document *openaitest.Document
	api      http.Handler
	url      string
	logs     *printed.Buffer
	// prunedIn returns the session of a turn that was pruned, or of a digest; notePruned notes it as the eraser does.
	prunedIn   func(ctx context.Context, name string) (string, error)
	notePruned func(name, session string) error
}

type setting func(*stack)

// start runs the APIs on a log of their own, with the memory view.
func start(t testing.TB, settings ...setting) *stack {
	return startOn(t, natstest.Log(t, 1), settings...)
}

func startOn(t testing.TB, log *jetlog.Log, settings ...setting) *stack {
	t.Helper()
	view := memory.New(recent.Limits{MaxTurns: 500}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	s := &stack{t: t, log: log, logs: &printed.Buffer{}, document: openaitest.Read(t, os.Getenv(openaitest.Variable))}
	s.services = servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules, View: view},
	})
	s.wire = wire.Config{
		Open: true, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.native = s.services.Ports(v1.Config{Ports: services.Ports{Erasures: s.services.History}})
	s.cfg = openai.Config{
		Ports: services.Ports{
			Messages: s.services.History, SessionWrites: s.services.History, Turns: s.services.History,
			Lookup: s.services.Reader, Erasures: s.services.History, Sessions: s.services.Reader,
		},
		Key: []byte("key of the test"), Models: []string{"echo"},
	}
	notes, err := log.Notes(t.Context())
	require.NoError(t, err)
	s.prunedIn = func(ctx context.Context, name string) (session string, err error) {
		_, err = notes.Read(ctx, "pruned."+name, &session)
		return session, err
	}
	s.notePruned = func(name, session string) error {
		return notes.Put(t.Context(), "pruned."+name, session)
	}
	s.cfg.LinkReader, s.cfg.RefusalTime = s.services.Reader, time.Millisecond
	for _, set := range settings {
		set(s)
	}
	s.cfg.Items = answer.New(answer.Config{
		Ports: s.cfg.Ports, IDs: items.Minter{Key: s.cfg.Key},
	})
	s.cfg.Conversations = read.Items{
		Lookup: s.cfg.Lookup, IDs: items.Minter{Key: s.cfg.Key},
		SessionAt: func(ctx context.Context, at events.Position) (string, error) {
			if at.Partition >= log.Partitions() {
				return "", nil
			}
			e, _, err := log.At(ctx, at)
			return e.SessionID, err
		},
	}
	api := wire.New(s.wire)
	s.native.Rules = s.cfg.Rules
	v1.Mount(api, s.native)
	openai.Mount(api, s.cfg)
	s.api = api
	server := httptest.NewServer(s.document.Holding(api))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// head returns the end of the log.
func (s *stack) head() uint64 {
	s.t.Helper()
	at, err := s.log.Head(s.t.Context(), 0)
	require.NoError(s.t, err)
	return at.Seq
}

// client returns OpenAI's own client.
func (s *stack) client(more ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.url + "/v1"), option.WithAPIKey("key"), option.WithMaxRetries(0),
	}, more...)...)
}

// reply is what came back of a request.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

// do sends a request with a body as it is written.
func (s *stack) do(method, path, body string, header ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	a := reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // what is no object has no body
	return a
}

// must is do, and requires status 200.
func (s *stack) must(method, path, body string, header ...string) map[string]any {
	s.t.Helper()
	a := s.do(method, path, body, header...)
	require.Equal(s.t, http.StatusOK, a.status, "%s %s: %s", method, path, a.raw)
	return a.body
}

// begin makes a conversation and returns its id.
func (s *stack) begin(items ...string) string {
	s.t.Helper()
	return s.must("POST", "/v1/conversations", `{"items":[`+strings.Join(items, ",")+`]}`)["id"].(string)
}

// post adds items, and returns what came back of them.
func (s *stack) post(id string, items ...string) []any {
	s.t.Helper()
	body := `{"items":[` + strings.Join(items, ",") + `]}`
	return s.must("POST", "/v1/conversations/"+id+"/items", body)["data"].([]any)
}

// list returns all items of a conversation, oldest first, read in pages of a size.
func (s *stack) list(id string, size int) (all []any) {
	s.t.Helper()
	after := ""
	for {
		page := s.must("GET", fmt.Sprintf("/v1/conversations/%s/items?order=asc&limit=%d%s", id, size, after), "")
		data := page["data"].([]any)
		all = append(all, data...)
		if page["has_more"] == false {
			return all
		}
		require.Len(s.t, data, size)
		after = "&after=" + page["last_id"].(string)
	}
}

// texts returns the texts of messages, and the types of other items.
func texts(items []any) (out []string) {
	for _, one := range items {
		i := one.(map[string]any)
		if i["type"] != "message" {
			out = append(out, i["type"].(string))
			continue
		}
		line := ""
		for _, p := range i["content"].([]any) {
			text, _ := p.(map[string]any)["text"].(string)
			line += text
		}
		out = append(out, line)
	}
	return out
}

func ids(items []any) (out []string) {
	for _, one := range items {
		out = append(out, one.(map[string]any)["id"].(string))
	}
	return out
}

func user(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }

func assistant(text string) string { return fmt.Sprintf(`{"role":"assistant","content":%q}`, text) }

// said returns a message in the client's own form.
func said(role responses.EasyInputMessageRole, text string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(text, role)
}

func newItems(items ...responses.ResponseInputItemUnionParam) conversations.ItemNewParams {
	return conversations.ItemNewParams{Items: items}
}

// function is a call of a function.
func function(call string) string {
	return fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":"f","arguments":"{}"}`, call)
}
