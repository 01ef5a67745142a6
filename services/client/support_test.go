package client_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rules = conversation.Rules{SessionTTL: 24 * time.Hour}

// server is a real API on a log of its own, behind a wrapper.
type server struct {
	*httptest.Server
	t   testing.TB
	log *jetlog.Log
}

func start(t testing.TB, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	log := natstest.Log(t, 1)
	service := history.New(log, history.Config{Rules: rules})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	reader := contextbuilder.NewReader(log, contextbuilder.ReaderConfig{Rules: rules})
	var h http.Handler = httpapi.New(httpapi.Config{
		Open:  true,
		Turns: writer{service}, SessionWrites: writer{service}, Sessions: sessions{reader},
		Contexts: contexts{contextbuilder.NewBuilder(reader, contextbuilder.Config{})},
	})
	if wrap != nil {
		h = wrap(h)
	}
	s := &server{httptest.NewServer(h), t, log}
	t.Cleanup(s.Close)
	return s
}

// stub is a server with an API behind the wrapper that says yes to everything.
func stub(t testing.TB, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	yes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("{}"))
	})
	s := &server{Server: httptest.NewServer(wrap(yes)), t: t}
	t.Cleanup(s.Close)
	return s
}

// client gives a client that is patient for as long as a test may take.
func (s *server) client(set func(*client.Config)) *client.Client {
	s.t.Helper()
	cfg := client.Config{URL: s.URL}
	if set != nil {
		set(&cfg)
	}
	c, err := client.New(cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// events counts what the log holds of a session.
func (s *server) events(session string) int {
	s.t.Helper()
	n := 0
	for _, err := range s.log.Session(s.t.Context(), session, 0, math.MaxUint64) {
		require.NoError(s.t, err)
		n++
	}
	return n
}

// The adapters of cmd/turnledger.

type writer struct{ s *history.Service }

func (w writer) StartTurn(ctx context.Context, c conversation.Start) (httpapi.Turn, error) {
	t, err := w.s.StartTurn(ctx, c)
	return httpapi.Turn(t), err
}

func (w writer) FinalizeTurn(ctx context.Context, c conversation.Finalize) (httpapi.Turn, error) {
	t, err := w.s.FinalizeTurn(ctx, c)
	return httpapi.Turn(t), err
}

func (w writer) RedactTurn(ctx context.Context, session string, c conversation.Redact) (httpapi.Turn, error) {
	t, err := w.s.RedactTurn(ctx, session, c)
	return httpapi.Turn(t), err
}

func (w writer) CorrectTurn(ctx context.Context, c conversation.Correct) (httpapi.Turn, error) {
	t, err := w.s.CorrectTurn(ctx, c)
	return httpapi.Turn(t), err
}

func (w writer) LinkSession(ctx context.Context, session, identity, source string) (httpapi.Session, error) {
	t, err := w.s.LinkSession(ctx, session, identity, source)
	return httpapi.Session(t), err
}

func (w writer) ResetSession(ctx context.Context, session, reason string) (httpapi.Session, error) {
	t, err := w.s.ResetSession(ctx, session, reason)
	return httpapi.Session(t), err
}

type sessions struct{ r *contextbuilder.Reader }

func (s sessions) Read(ctx context.Context, ask httpapi.Ask) (httpapi.Reading, error) {
	r, err := s.r.Read(ctx, contextbuilder.Ask{SessionID: ask.SessionID, Shown: ask.Shown, MinPosition: ask.MinPosition})
	return httpapi.Reading{State: r.State, Position: r.Position, Source: string(r.Source)}, err
}

type contexts struct{ b *contextbuilder.Builder }

func (c contexts) Build(ctx context.Context, q httpapi.ContextRequest) (httpapi.Context, error) {
	r, err := c.b.Build(ctx, contextbuilder.Request{SessionID: q.SessionID, Message: q.Message, MaxMessages: q.MaxMessages, History: q.History})
	if err != nil {
		return httpapi.Context{}, err
	}
	out := httpapi.Context{SessionFound: r.SessionFound, HistoryMessages: r.HistoryMessages, Position: r.Position, Source: string(r.Source)}
	for _, m := range r.Messages {
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}
