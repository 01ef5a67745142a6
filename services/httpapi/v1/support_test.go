package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// rules are those of a deployment by default.
var rules = session.Rules{SessionTTL: 24 * time.Hour}

// stack is an API on a log of its own.
type stack struct {
	t       testing.TB
	log     *jetlog.Log
	api     *wire.API
	cfg     config
	url     string
	logs    *printed.Buffer
	metrics *prometheus.Registry
}

type (
	wireConfig = wire.Config
	v1Config   = v1.Config
)

// config is that of an API with the native surface alone, and of the services behind it.
type config struct {
	wireConfig
	v1Config
	history write.Config
	reader  read.Config
}

func newAPI(c config) *wire.API {
	api := wire.New(c.wireConfig)
	v1.Mount(api, c.v1Config)
	return api
}

// open is an API that asks nobody for a key.
func openAPI(c v1.Config) *wire.API {
	return newAPI(config{wireConfig: wireConfig{Open: true}, v1Config: c})
}

// route is a call as tests see it.
type route struct {
	needs access.Scopes
	// bounds: the call is for bound callers, though its path names nothing of theirs.
	bounds bool
}

// anybody is what calls need that are answered to anybody.
const anybody = access.Scopes(1 << 7)

// routes are all calls of an API, by pattern.
func routes(api *wire.API) map[string]route {
	out := map[string]route{}
	for _, t := range api.Routes() {
		named := strings.Contains(t.Path, "{session_id}") || strings.Contains(t.Path, "{identity_id}")
		r := route{t.Needs | t.Any, false}
		if t.Public {
			r.needs = anybody
		} else {
			bound := &wire.Call{Context: context.Background()}
			bound.Caller.IdentityID = "ada"
			err := t.Admit(httptest.NewRequest(t.Method, "/", nil).WithContext(bound))
			r.bounds = !named && !errors.Is(err, wire.ErrBound)
		}
		out[t.Method+" "+t.Path] = r
	}
	return out
}

// unset are the ports that an API was not given.
func unset(configs ...any) (names []string) {
	for _, c := range configs {
		v := reflect.ValueOf(c)
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Interface && f.IsNil() {
				names = append(names, v.Type().Field(i).Name)
			}
		}
	}
	return names
}

type setting func(*config)

// start runs an API with the real services behind it, and no view.
func start(t testing.TB, settings ...setting) *stack {
	return startOn(t, natstest.Log(t, 1), settings...)
}

// bare runs an API with nothing behind it but the ports that it is given.
func bare(t testing.TB, settings ...setting) *stack { return startOn(t, nil, settings...) }

func startOn(t testing.TB, log *jetlog.Log, settings ...setting) *stack {
	t.Helper()
	s := &stack{t: t, log: log, logs: &printed.Buffer{}, metrics: prometheus.NewRegistry()}
	c := config{
		wireConfig: wireConfig{
			Registry: s.metrics, Open: true,
			Logger: slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		},
		v1Config: v1Config{Ports: services.Ports{Version: "test"}},
		history: write.Config{Rules: rules, Policy: decide.Policy{
			MetadataKeys: []string{"channel", "locale", session.FallbackKey}}},
		reader: read.Config{Rules: rules, Deadline: 200 * time.Millisecond},
	}
	for _, set := range settings {
		set(&c)
	}
	if log != nil {
		behind := servicetest.Start(t, log, servicetest.Config{History: c.history, Reader: c.reader})
		c.v1Config = behind.Ports(c.v1Config)
	}
	s.api, s.cfg = newAPI(c), c
	server := httptest.NewServer(s.api)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// withMemoryView feeds a memory view from the log and reads from it.
func withMemoryView(t testing.TB, log *jetlog.Log) setting {
	view := memory.New(recent.Limits{}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	return func(c *config) { c.reader.View = view }
}

// eachBackend runs a test on the log alone and with the memory view.
func eachBackend(t *testing.T, test func(t *testing.T, s *stack)) {
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		test(t, start(t))
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		log := natstest.Log(t, 1)
		test(t, startOn(t, log, withMemoryView(t, log)))
	})
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

// streamed is a body of unknown length.
type streamed string

// do sends a request; a body that is a string goes as it is, others as JSON.
func (s *stack) do(method, path string, body any, header ...string) answer {
	s.t.Helper()
	return must.Get(s.try(method, path, body, header...))(s.t)
}

func (s *stack) try(method, path string, body any, header ...string) (answer, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case streamed:
		r = struct{ io.Reader }{strings.NewReader(string(b))}
	case io.Reader:
		r = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.url+path, r)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := noRedirects.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	a.body = object(a.raw)
	return a, nil
}

// object reads an answer, where it is an object.
func object(raw []byte) (out map[string]any) {
	_ = json.Unmarshal(raw, &out)
	return out
}

var noRedirects = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ok sends a request that must succeed.
func (s *stack) ok(status int, method, path string, body any, header ...string) map[string]any {
	s.t.Helper()
	a := s.do(method, path, body, header...)
	require.Equal(s.t, status, a.status, "%s %s: %s", method, path, a.raw)
	require.Equal(s.t, "application/json", a.header.Get("Content-Type"))
	return a.body
}

// record records a whole turn and gives its id; an empty answer leaves it pending.
func (s *stack) record(session, request, question, reply string) string {
	s.t.Helper()
	turn := s.ok(http.StatusCreated, "POST", "/v1/sessions/"+session+"/turns", map[string]any{"request_id": request,
		"question_neutral": question})
	id := turn["turn_id"].(string)
	if reply != "" {
		s.ok(http.StatusOK, "POST", "/v1/sessions/"+session+"/turns/"+id+"/finalize",
			map[string]any{"answer_neutral": reply})
	}
	return id
}

// head is the log's last sequence.
func (s *stack) head() uint64 {
	s.t.Helper()
	return must.Get(s.log.Head(s.t.Context(), 0))(s.t).Seq
}

// state folds a session from the log.
func (s *stack) state(sessionID string) *session.State {
	s.t.Helper()
	return natstest.Fold(s.t, s.log, sessionID, rules)
}

func (s *stack) append(f events.Fact) {
	s.t.Helper()
	must.Get(s.log.Append(s.t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(s.t)
}

func keys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func said(text string) services.AnswerPiece {
	return services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: text}}
}
