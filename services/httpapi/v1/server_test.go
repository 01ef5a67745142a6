package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
)

// A page that a browser on this machine shows must not reach an API that asks
// nobody who they are.
func TestForeignPagesAreTurnedAway(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := `{"request_id":"r","question_neutral":"q"}`
	for name, header := range map[string][]string{
		"another site":     {"Sec-Fetch-Site", "cross-site"},
		"another origin":   {"Origin", "https://evil.example"},
		"a rebound name":   {"Host", "evil.example:8480"},
		"a name like ours": {"Host", "localhost.evil.example"},
	} {
		a := s.do("POST", "/v1/sessions/s/turns", body, header...)
		requireProblem(t, a, http.StatusForbidden, "forbidden")
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), name)
	}
	requireProblem(t, s.do("GET", "/v1/sessions/s", nil, "Host", "evil.example"), http.StatusForbidden, "forbidden")
	require.Zero(t, s.head())
	for _, host := range []string{"localhost:1", "127.0.0.1", "[::1]:8480", "app.localhost"} {
		s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil, "Host", host)
	}
	authenticated := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Open, c.Auth = false, ring{"k": {Scopes: access.TurnsWrite}}
	})
	authenticated.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", body, "Host", "turnledger.example",
		"Authorization", "Bearer k")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Checks = []wire.Check{
			{Name: "log", Probe: func(context.Context) error { return nil }},
			{Name: "views", Probe: func(ctx context.Context) error {
				if !down.Load() {
					return nil
				}
				<-ctx.Done()
				return errors.New("connection refused")
			}},
		}
	})
	require.Equal(t, map[string]any{"status": "ok"}, s.ok(http.StatusOK, "GET", "/healthz", nil))
	ready := map[string]any{"status": "ok", "checks": map[string]any{"log": map[string]any{"ok": true},
		"views": map[string]any{"ok": true}}}
	require.Equal(t, ready, s.ok(http.StatusOK, "GET", "/readyz", nil))
	down.Store(true)
	a := s.do("GET", "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	views := a.body["checks"].(map[string]any)["views"].(map[string]any)
	require.NotEmpty(t, views["since"])
	require.Equal(t, views["since"], s.do("GET", "/readyz",
		nil).body["checks"].(map[string]any)["views"].(map[string]any)["since"])
	delete(views, "since")
	require.Equal(t, map[string]any{"log": map[string]any{"ok": true}, "views": map[string]any{"ok": false}},
		a.body["checks"])
	require.Contains(t, s.logs.String(), "connection refused")
	s.ok(http.StatusOK, "GET", "/healthz", nil)
}

// A process that only writes, or only reads, has only those calls.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := start(t)
	bare := openAPI(v1.Config{})
	require.NotNil(t, bare)
	l := listen(t)
	natstest.Run(t, func(ctx context.Context) error { return wire.Serve(ctx, l, bare, wire.ServerConfig{}) })
	s.url = "http://" + l.Addr().String()
	for _, path := range []string{"/v1/sessions/s", "/v1/sessions/s/turns", "/v1/sessions/s/history"} {
		requireProblem(t, s.do("GET", path, nil), http.StatusNotFound, "not_found")
	}
	s.ok(http.StatusOK, "GET", "/v1/projections", nil)
	s.ok(http.StatusOK, "GET", "/healthz", nil)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// Stopping under load: whatever a client was told is in the log.
func TestStoppingLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	s := start(t)
	for round := range 3 {
		l := listen(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- wire.Serve(ctx, l, s.api, wire.ServerConfig{}) }()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32, MaxConnsPerHost: 32}}
		var told sync.Map
		var count atomic.Int32
		enough := make(chan struct{})
		var wg sync.WaitGroup
		for w := range 32 {
			wg.Go(func() {
				for i := 0; ; i++ {
					session, request := fmt.Sprint("s", round, "-", w), fmt.Sprint(i)
					resp, err := client.Post("http://"+l.Addr().String()+"/v1/sessions/"+session+"/turns",
						"application/json",
						stringsReader(`{"request_id":"`+request+`","question_neutral":"q"}`))
					if err != nil {
						return // stopped
					}
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusCreated {
						t.Errorf("status %d", resp.StatusCode)
						return
					}
					told.Store([2]string{session, request}, true)
					if count.Add(1) == 200 {
						close(enough)
					}
				}
			})
		}
		<-enough
		stop()
		require.NoError(t, <-ended)
		wg.Wait()
		client.CloseIdleConnections()
		told.Range(func(key, _ any) bool {
			k := key.([2]string)
			require.NotNil(t, s.state(k[0]).Turn(events.TurnID(k[0], k[1])), "%v was acknowledged", k)
			return true
		})
	}
}
