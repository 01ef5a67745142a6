package client_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/client"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// server is a real API on a log of its own, behind a wrapper.
type server struct {
	*httptest.Server
	t   testing.TB
	log *jetlog.Log
}

func start(t testing.TB, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	return startOn(t, natstest.Log(t, 1), services.Ports{}, wrap)
}

// startOn is start on a log, with more than what writes and reads turns.
func startOn(t testing.TB, log *jetlog.Log, more services.Ports, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	var h http.Handler = servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules},
	}).API(wire.Config{Open: true}, v1.Config{Ports: more})
	s := startAPI(t, h, wrap)
	s.log = log
	return s
}

func startAPI(t testing.TB, h http.Handler, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	if wrap != nil {
		h = wrap(h)
	}
	s := &server{Server: httptest.NewServer(h), t: t}
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

// client returns a client that is patient for as long as a test may take.
func (s *server) client(set func(*client.Config)) *client.Client {
	s.t.Helper()
	cfg := client.Config{URL: s.URL}
	if set != nil {
		set(&cfg)
	}
	c := must.Get(client.New(cfg))(s.t)
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
