package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// bodies name the session "theirs" in calls whose handlers admit the caller, and are whole in calls that have a rate.
var bodies = map[string]string{
	"POST /v1/sessions/{session_id}/turns":           `{"request_id":"r","question_neutral":"q"}`,
	"POST /v1/sessions/{session_id}/context":         `{"message":"m"}`,
	"POST /v1/turns":                                 `{"session_id":"theirs","request_id":"r","question_neutral":"q"}`,
	"POST /v1/threads/{thread_id}/messages":          `{"content":"c"}`,
	"POST /v1/threads/{thread_id}/messages/stream":   `{"content":"c"}`,
	"POST /v1/chat":                                  `{"content":"c","thread_id":"theirs"}`,
	"POST /v1/chat/stream":                           `{"content":"c","thread_id":"theirs"}`,
	"POST /v1/conversations":                         `{}`,
	"POST /v1/conversations/{conversation_id}/items": `{"items":[{"role":"user","content":"q"}]}`,
	"POST /v1/responses":                             `{"input":"q","conversation":"theirs"}`,
	"POST /v1/responses/input_tokens":                `{"input":"q","conversation":"theirs"}`,
	"POST /v1/responses/compact":                     `{"input":"q","conversation":"theirs"}`,
	"POST /v1/chat/completions":                      `{"messages":[{"role":"user","content":"q"}],"metadata":{"session_id":"theirs"}}`,
	"POST /console/playground/send":                  "content=c&thread_id=theirs",
	"POST /console/playground/stream":                "content=c&thread_id=theirs",
}

// rated are the calls that have a rate, by the kind of it.
var rated = map[string]string{
	"POST /v1/sessions/{session_id}/turns": "turn", "POST /v1/sessions/{session_id}/context": "context",
	"POST /v1/turns": "turn", "POST /v1/threads/{thread_id}/messages": "turn",
	"POST /v1/threads/{thread_id}/messages/stream": "turn", "POST /v1/chat": "turn", "POST /v1/chat/stream": "turn",
	"POST /v1/conversations": "turn", "POST /v1/conversations/{conversation_id}/items": "turn",
	"POST /v1/responses": "turn", "POST /v1/responses/input_tokens": "turn",
	"POST /v1/responses/compact":    "turn",
	"POST /v1/chat/completions":     "turn",
	"POST /console/playground/send": "turn", "POST /console/playground/stream": "turn",
}

// endless are the calls that last as long as their client wants.
var endless = []string{
	"GET /v1/events", "GET /v1/partitions/{partition}/snapshot", "POST /v1/restore",
	"POST /v1/projections/{name}/verify", "GET /console/log/live", "GET /console/sessions/{session_id}/live",
	"GET /console/sessions/{session_id}/export", "GET /console/open", "GET /v1/streams/sessions/{session_id}",
}

// theirs links each session to ada.
type theirs struct{}

func (theirs) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	s := session.New(ask.SessionID, session.Rules{})
	s.Identity = "ada"
	return services.Reading{State: s}, nil
}

// meter notes who is charged, and refuses everything where it is full.
type meter struct {
	full    bool
	charged [][3]string
}

func (*meter) ByIdentity() bool { return true }

func (m *meter) Allow(kind, session, identity string) (time.Duration, bool) {
	m.charged = append(m.charged, [3]string{kind, session, identity})
	return time.Minute, !m.full
}

// responder looks for the session of each response, and does nothing else.
type responder struct{ services.Responder }

func (responder) Respond(context.Context, services.StepAsk, services.Listener) (services.Answered, error) {
	return services.Answered{}, nil
}

func (responder) CountTokens(context.Context, services.StepAsk) (int64, error) { return 1, nil }

func (responder) Response(ctx context.Context, _ string, who services.Caller) (services.Answered, error) {
	return services.Answered{}, who.May(ctx, "theirs")
}

func (responder) CancelResponse(
	ctx context.Context, _ string, who services.Caller,
) (services.Answered, error) {
	return services.Answered{}, who.May(ctx, "theirs")
}

func (responder) DeleteResponse(
	ctx context.Context, _ string, who services.Caller, _ services.Call,
) (events.Position, error) {
	return events.Position{}, who.May(ctx, "theirs")
}

func (responder) InputItems(
	ctx context.Context, _ string, who services.Caller, _ services.Paging,
) (services.ItemPage, error) {
	return services.ItemPage{Found: true}, who.May(ctx, "theirs")
}

// turns records nothing, where nothing is to be recorded.
type turns struct{ services.TurnWriter }

func (t turns) StartTurns(ctx context.Context, commands []decide.Start) []services.TurnOutcome {
	if len(commands) == 0 {
		return nil
	}
	return t.TurnWriter.StartTurns(ctx, commands)
}

// queue is a queue of dead letters.
type queue struct{ projections.DeadLetterQueue }

func (queue) Name() string { return "audit" }

// everything is an API with every route of every surface, over ports that do no work: who calls one fails.
func everything(t *testing.T, m *meter, logs *printed.Buffer) *wire.API {
	t.Helper()
	const all = access.TurnsWrite | access.ContextRead | access.EventsRead | access.TurnsRedact | access.Admin
	callers := ring{
		"all": {Name: "all", Scopes: all}, "eve": {Name: "eve", Scopes: all, IdentityID: "eve"},
		"ada": {Name: "ada", Scopes: all, IdentityID: "ada"},
	}
	ports := services.Ports{
		Turns: turns{}, Messages: struct{ services.MessageWriter }{},
		SessionWrites: struct{ services.SessionWriter }{}, Lookup: struct{ services.TurnLookup }{},
		Erasures: struct{ services.ErasureWriter }{}, Receipts: struct{ services.ReceiptReader }{},
		Retention: struct{ services.Retention }{}, Sessions: struct{ services.SessionReader }{},
		Contexts: struct{ services.ContextBuilder }{}, Events: struct{ services.EventReader }{},
		Identities: struct{ services.IdentityReader }{}, Lists: struct{ services.SessionLister }{},
		Counts: struct{ services.TurnCounter }{}, Search: struct{ services.Searcher }{},
		Similar: struct{ services.SimilarTurns }{}, Chat: struct{ services.Chat }{},
		Projections: struct{ services.ProjectionReader }{}, Keeper: struct{ services.ProjectionKeeper }{},
		DeadLetters: []projections.DeadLetterQueue{queue{}},
		Rules:       services.Rules{LinkReader: theirs{}, Limiter: m, RefusalTime: time.Millisecond},
	}
	api := wire.New(wire.Config{Auth: callers, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	v1.Mount(api, v1.Config{
		Ports: ports, Streams: struct{ v1.StreamKeeper }{}, Backups: struct{ v1.Backups }{},
	})
	openai.Mount(api, openai.Config{Ports: ports, Key: []byte("k"), Models: []string{"echo"}, Responses: responder{}})
	console.Mount(api, console.Config{Ports: ports, Auth: callers, SealKey: []byte("k")})
	return api
}

// sent sends a request to a route, about the session "theirs".
func sent(api *wire.API, route wire.Route, caller string) *httptest.ResponseRecorder {
	pattern := route.Method + " " + route.Path
	path := strings.NewReplacer("{session_id}", "theirs", "{conversation_id}", "theirs", "{thread_id}", "theirs",
		"{identity_id}", "ada", "{turn_id}", "2d1b1a0e-4c1b-5c5e-9c7e-6a6f3f0f7a11", "{response_id}", "resp_1").
		Replace(route.Path)
	if pattern == "GET /v1/events" {
		path += "?session_id=theirs"
	}
	body := bodies[pattern]
	if body == "" && route.Method != http.MethodGet {
		body = "{}"
	}
	r := httptest.NewRequest(route.Method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+caller)
	if strings.HasPrefix(path, "/console") {
		in := httptest.NewRecorder()
		api.ServeHTTP(in, httptest.NewRequest(http.MethodPost, "/console/signin",
			strings.NewReader(url.Values{"key": {caller}}.Encode())))
		for _, c := range in.Result().Cookies() {
			r.AddCookie(c)
		}
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

// status returns that of an answer, or of the only line of a batch.
func status(w *httptest.ResponseRecorder) int {
	var line struct {
		HTTPStatus int `json:"http_status"`
	}
	if json.Unmarshal(w.Body.Bytes(), &line) == nil && line.HTTPStatus > 0 {
		return line.HTTPStatus
	}
	return w.Code
}

// Every route of every surface admits its caller before any work is done: by reach, then by the rate of the session's
// linked identity; and it has a deadline. Who can't reach a session learns nothing, and charges nobody. A route that
// names a session where this test does not see it says here where that is.
func TestEveryRouteAdmits(t *testing.T) {
	t.Parallel()
	var logs printed.Buffer
	m := &meter{full: true}
	api := everything(t, m, &logs)
	seen, kinds := 0, map[string]string{}
	for _, route := range api.Routes() {
		if route.Public {
			continue
		}
		seen++
		require.NotNil(t, route.Admit, "%s admits nobody", route.Path)
		pattern := route.Method + " " + route.Path
		require.Equal(t, slices.Contains(endless, pattern), route.Deadline == 0, "%s has a deadline", pattern)
		later := errors.Is(route.Admit(httptest.NewRequest(route.Method, "/", nil)), wire.ErrLater)
		named := strings.Contains(route.Path, "{session_id}") || strings.Contains(route.Path, "{conversation_id}") ||
			strings.Contains(route.Path, "{response_id}") || strings.Contains(bodies[pattern], "theirs") ||
			strings.Contains(route.Path, "{thread_id}") || pattern == "GET /v1/events"
		require.True(t, named || !later, "%s: say in this test how it names a session", pattern)
		m.charged = nil
		if named && !strings.HasPrefix(route.Path, "/console/playground") {
			w := sent(api, route, "eve")
			require.Equal(t, http.StatusNotFound, status(w), "%s: %s", pattern, w.Body)
		} else if strings.HasPrefix(route.Path, "/console/playground") {
			require.Equal(t, http.StatusForbidden, sent(api, route, "eve").Code, pattern)
		}
		require.Empty(t, m.charged, pattern)

		w := sent(api, route, "all")
		if len(m.charged) == 0 {
			require.NotEqual(t, http.StatusTooManyRequests, status(w), pattern)
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, status(w), "%s: %s", pattern, w.Body)
		kinds[pattern] = m.charged[0][0]
		if named {
			require.Equal(t, [][3]string{{rated[pattern], "theirs", "ada"}}, m.charged, pattern)
		}
	}
	require.Equal(t, rated, kinds)
	require.Greater(t, seen, 80)
	require.NotContains(t, logs.String(), "never admitted")
}

// A route that forgets to admit its caller is for nobody; and one that says that it admits later and does not, answers
// nothing.
func TestARouteThatForgetsToAdmitAnswersNothing(t *testing.T) {
	t.Parallel()
	var logs printed.Buffer
	route := wire.Route{
		Method: http.MethodGet, Path: "/v1/notes/all", Needs: access.TurnsWrite,
		Handle: func(w http.ResponseWriter, _ *http.Request) error {
			wire.WriteJSON(w, http.StatusOK, "a note")
			return nil
		},
	}
	surface := wire.Surface{Prefixes: []string{"/v1/notes"}, Refuse: refuseNotes, SafeText: func(err error) string {
		return wire.SafeText(err, jetlog.ErrClosed)
	}}
	api := wire.New(wire.Config{Open: true, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	surface.Routes = []wire.Route{route}
	api.Mount(surface)
	route.Path, route.Admit = "/v1/notes/some", func(*http.Request) error { return wire.ErrLater }
	surface.Routes = []wire.Route{route}
	api.Mount(surface)
	for _, path := range []string{"/v1/notes/all", "/v1/notes/some"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.NotContains(t, w.Body.String(), "a note")
	}
	require.Contains(t, logs.String(), "panic")
}
