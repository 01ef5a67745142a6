package console_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/whatif"
	"github.com/turnledger/turnledger/services/export"
	"github.com/turnledger/turnledger/services/export/explain"
	"github.com/turnledger/turnledger/services/httpapi/console"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
	"github.com/turnledger/turnledger/services/write"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

const every = access.TurnsWrite | access.ContextRead | access.EventsRead | access.TurnsRedact | access.Admin

// ring knows callers by their keys; keys can be revoked.
type ring struct{ callers sync.Map }

func (r *ring) Authenticate(_ context.Context, key string) (access.Caller, error) {
	if c, ok := r.callers.Load(key); ok {
		return c.(access.Caller), nil
	}
	return access.Caller{}, access.ErrUnauthenticated
}

func newRing(callers map[string]access.Caller) *ring {
	r := &ring{}
	for key, c := range callers {
		r.callers.Store(key, c)
	}
	return r
}

// lists is a list of sessions that remembers what it was asked.
type lists struct {
	asked services.SessionsAsk
	page  services.SessionPage
	err   error
}

func (l *lists) Sessions(_ context.Context, ask services.SessionsAsk) (services.SessionPage, error) {
	l.asked = ask
	return l.page, l.err
}

// reader reads sessions; it can forget what it has read.
type reader struct{ services.SessionReader }

// forget makes the console read each session as if for the first time.
func (s *stack) forget() {
	s.reader.SessionReader = read.New(s.log, read.Config{Rules: rules})
}

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// clock is a time that the test sets, while requests may read it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *clock) pass(d time.Duration) { c.set(c.read().Add(d)) }

// stack is a console on a log of its own.
type stack struct {
	t        testing.TB
	handler  http.Handler
	api      *wire.API
	log      *jetlog.Log
	services servicetest.Services
	reader   *reader
	logs     printed.Buffer
	metrics  *prometheus.Registry
	now      clock
	lists    *lists
}

// start runs a console; with a ring it asks for keys.
func start(t testing.TB, auth *ring, settings ...func(*console.Config)) *stack {
	t.Helper()
	return startWith(t, auth, 1, settings...)
}

// startWith is start on a log of so many partitions.
func startWith(t testing.TB, auth *ring, partitions int, settings ...func(*console.Config)) *stack {
	t.Helper()
	return startOn(t, natstest.Log(t, partitions), auth, settings...)
}

// startOn is start on a log.
func startOn(t testing.TB, log *jetlog.Log, auth *ring, settings ...func(*console.Config)) *stack {
	t.Helper()
	s := &stack{t: t, log: log, metrics: prometheus.NewRegistry(), lists: &lists{}}
	s.now.set(time.Now())
	w := wire.Config{
		Registry: s.metrics, Open: auth == nil,
		Logger: slog.New(slog.NewJSONHandler(&s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.services = servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules},
		Reader:  read.Config{Rules: rules, Deadline: hang.Limit},
	})
	s.reader = &reader{s.services.Reader}
	c := console.Config{
		SealKey: []byte("a key"), Ports: services.Ports{
			Lists: s.lists, Sessions: s.reader, Version: "test", Now: s.now.read,
			// The race detector makes pages of many megabytes slow on a machine that is busy.
			Rules: services.Rules{
				LinkReader: s.services.Reader, Deadline: hang.Limit, RefusalTime: time.Millisecond,
			},
		},
	}
	events := replay.New(log, owners.New(log, nil))
	natstest.Run(t, events.Run)
	c.Events = events
	c.Explain = explain.Service{Events: events, Sessions: s.services.Reader, Contexts: s.services.Contexts}
	c.WhatIfs = whatif.Service{
		Walk: func(ctx context.Context, id string) (whatif.Walk, error) {
			return s.services.Reader.Walk(ctx, id)
		},
		Events: events, Prompts: s.services.Contexts,
	}
	if auth != nil {
		c.Auth = auth
	}
	c.Erased = log
	c.Places = map[string]string{"audit": "the tables in PostgreSQL"}
	none := &operated{}
	c.Projections, c.Receipts, c.Keeper = none, none, none
	c.People = export.People{Events: events, Sessions: s.services.Reader, Receipts: none}
	c.DeadLetters = []projections.DeadLetterQueue{none}
	c.Turns, c.SessionWrites, c.Erasures = s.services.History, s.services.History, s.services.History
	c.Tokens, c.Contexts = contextbuilder.Estimate{}.Count, s.services.Contexts
	for _, set := range settings {
		set(&c)
	}
	if auth != nil {
		w.Auth = c.Auth
	}
	s.api = wire.New(w)
	console.Mount(s.api, c)
	s.handler = s.api
	return s
}

// answer is what the console answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; a form is posted. headers are names and values; "Cookie" adds one.
func (s *stack) do(method, target string, form url.Values, headers ...string) answer {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequest(method, target, body)
	r.Host = "localhost:8480"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// cookieOf signs in, and returns the cookie.
func (s *stack) cookieOf(key string, headers ...string) string {
	s.t.Helper()
	a := s.do("POST", "/console/signin", url.Values{"key": {key}}, headers...)
	require.Equal(s.t, http.StatusSeeOther, a.status, a.body)
	name, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return name
}

// page gets a page, with a cookie if one is given.
func (s *stack) page(target, cookie string) answer {
	s.t.Helper()
	if cookie == "" {
		return s.do("GET", target, nil)
	}
	return s.do("GET", target, nil, "Cookie", cookie)
}

// turn records a turn, and its answer unless that is empty.
func (s *stack) turn(session, request, question, answered string) services.Turn {
	s.t.Helper()
	c := decide.Start{SessionID: session, RequestID: request}
	c.Question = events.Question{QuestionNeutral: question}
	t := must.Get(s.services.History.StartTurn(s.t.Context(), c))(s.t)
	if answered == "" {
		return t
	}
	f := decide.Finalize{SessionID: session, TurnID: t.ID, Answer: events.Answer{AnswerNeutral: answered}}
	return must.Get(s.services.History.FinalizeTurn(s.t.Context(), f))(s.t)
}

// correct corrects the answer of a turn, and returns where that stands in the log.
func (s *stack) correct(session string, of services.Turn, answered string) events.Position {
	s.t.Helper()
	t := must.Get(s.services.History.CorrectTurn(s.t.Context(), decide.Correct{
		SessionID: session, TurnID: of.ID, RequestID: "correct " + of.ID.String(), AnswerNeutral: &answered,
	}))(s.t)
	return t.Position
}

func (s *stack) link(session, identity string) {
	s.t.Helper()
	must.Get(s.services.History.LinkSession(s.t.Context(), session, identity, ""))(s.t)
}

// listed is a session of a list.
func listed(id, identity, title, question string) projections.ListedSession {
	one := projections.ListedSession{SessionID: id, LastTurn: &projections.LastTurn{Question: question}}
	one.Identity, one.CreatedAt, one.LastActive = identity, time.Unix(1, 0), time.Unix(2, 0)
	one.Pending = 1
	one.HeldDescription = session.DescribedBy(session.Description{Title: title})
	return one
}

func said(text string) services.AnswerPiece {
	return services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: text}}
}
