package v1_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/certfile"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
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
	authenticated := start(t, func(c *config) { c.Open, c.Auth = false, ring{"k": {Scopes: access.TurnsWrite}} })
	authenticated.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", body, "Host", "turnledger.example",
		"Authorization", "Bearer k")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	s := bare(t, func(c *config) {
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

func listen(t testing.TB) net.Listener {
	t.Helper()
	return must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
}

// gate holds readings up until it is opened.
type blockedSessions struct {
	entered, open chan struct{}
}

func (g blockedSessions) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	g.entered <- struct{}{}
	<-g.open
	return slowOwners{}.Read(ctx, ask)
}

// As many requests are answered at once as may be; the next hears when to come again, and
// probes are answered all the same.
func TestRequestsThatAreTooMany(t *testing.T) {
	t.Parallel()
	g := blockedSessions{make(chan struct{}, 2), make(chan struct{})}
	s := bare(t)
	api := newAPI(config{wireConfig: wireConfig{Open: true, MaxRequests: 2, MaxStreams: 1}, v1Config: v1Config{
		Ports: services.Ports{Sessions: g},
	}})
	l := listen(t)
	natstest.Run(t, func(ctx context.Context) error { return wire.Serve(ctx, l, api, wire.ServerConfig{}) })
	s.url = "http://" + l.Addr().String()
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			a, err := s.try("GET", "/v1/sessions/s", nil)
			if err != nil {
				t.Error(err)
			}
			answers <- a.status
		}()
		<-g.entered
	}
	a := s.do("GET", "/v1/sessions/s", nil)
	requireProblem(t, a, http.StatusServiceUnavailable, "overloaded")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	s.ok(http.StatusOK, "GET", "/healthz", nil)
	close(g.open)
	require.Equal(t, []int{200, 200}, []int{<-answers, <-answers})
	s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)
}

func TestABodyIsBoundedByTheConfiguration(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config) { c.MaxBody = 2 << 10 })
	body := func(n int) string {
		return `{"request_id":"r","question_neutral":"` + strings.Repeat("q", n-len(`{"request_id":"r","question_neutral":""}`)) + `"}`
	}
	a := s.do("POST", "/v1/sessions/s/turns", body(2<<10+1))
	requireProblem(t, a, http.StatusRequestEntityTooLarge, "body_too_large")
	require.Contains(t, a.body["detail"], "2 KiB")
	requireProblem(t, s.do("POST", "/v1/sessions/s/turns", streamed(body(2<<10+1))), http.StatusRequestEntityTooLarge,
		"body_too_large")
	s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", body(2<<10))
}

// served runs a server over the stack's API.
func (s *stack) served(cfg wire.ServerConfig) string {
	s.t.Helper()
	l := listen(s.t)
	natstest.Run(s.t, func(ctx context.Context) error { return wire.Serve(ctx, l, s.api, cfg) })
	return l.Addr().String()
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(hang.Limit)))
	return c
}

// Clients that send a byte now and then, or nothing, are let go, and hold up nobody.
func TestSlowClientsAreLetGo(t *testing.T) {
	t.Parallel()
	s := start(t)
	const short = time.Second
	address := s.served(wire.ServerConfig{HeaderTimeout: short, ReadTimeout: 2 * short, IdleTimeout: short,
		MaxHeader: 4 << 10})
	s.url = "http://" + address
	ended := make(chan string)
	slow := func(name, first string, drip byte) {
		c := dial(t, address)
		go func() {
			_, _ = io.WriteString(c, first)
			tick := time.NewTicker(short / 10)
			defer tick.Stop()
			gone := make(chan []byte, 1)
			go func() {
				raw, _ := io.ReadAll(c)
				gone <- raw
			}()
			for {
				select {
				case raw := <-gone:
					ended <- fmt.Sprintf("%s %.12s", name, raw)
					return
				case <-tick.C:
					if drip != 0 {
						_, _ = c.Write([]byte{drip})
					}
				}
			}
		}()
	}
	slow("headers", "GET /v1/sessions/s HTTP/1.1\r\nHost: localhost\r\nX-A: ", 'a')
	slow("nothing", "", 0)
	slow("body", "POST /v1/sessions/s/turns HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", ' ')
	slow("idle", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 0)
	slow("large", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "+strings.Repeat("a", 16<<10)+"\r\n\r\n", 0)
	s.ok(http.StatusCreated, "POST", "/v1/sessions/other/turns", `{"request_id":"r","question_neutral":"q"}`)
	var all []string
	for range 5 {
		all = append(all, <-ended)
	}
	require.ElementsMatch(t, []string{"headers ", "nothing ", "body HTTP/1.1 400", "idle HTTP/1.1 200",
		"large HTTP/1.1 431"}, all)
	require.EqualValues(t, 1, s.head())
}

// More connections than may be wait until another is closed.
func TestConnectionsThatAreTooMany(t *testing.T) {
	t.Parallel()
	s := bare(t)
	address := s.served(wire.ServerConfig{MaxConnections: 1})
	ask := func(c net.Conn) string {
		must.Get(io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))(t)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		return resp.Status
	}
	first, second := dial(t, address), dial(t, address)
	require.Equal(t, "200 OK", ask(first))
	require.NoError(t, second.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	require.Contains(t, ask(second), "timeout")
	require.NoError(t, first.Close())
	require.NoError(t, second.SetReadDeadline(time.Now().Add(hang.Limit)))
	resp := must.Get(http.ReadResponse(bufio.NewReader(second), nil))(t)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// The API speaks HTTPS, and shows the next certificate without a new start; a connection
// that is open goes on.
func TestTheAPISpeaksTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	cert, key := ca.Issue("server")
	nextCert, nextKey := ca.Issue("next")
	pair := must.Get(certfile.Open(certfile.Config{Cert: cert, Key: key, Every: 5 * time.Millisecond}))(t)
	natstest.Run(t, pair.Run)
	s := bare(t)
	address := s.served(wire.ServerConfig{TLS: pair.Server()})
	shown := func() (string, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(), ForceAttemptHTTP2: true,
			DisableKeepAlives: true}}
		resp := must.Get(client.Get("https://" + address + "/healthz"))(t)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.Proto
	}
	name, proto := shown()
	require.Equal(t, "server", name)
	require.Equal(t, "HTTP/2.0", proto)
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client()}}
	defer kept.CloseIdleConnections()
	still := func() {
		resp := must.Get(kept.Get("https://" + address + "/healthz"))(t)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		require.Equal(t, "server", resp.TLS.PeerCertificates[0].Subject.CommonName)
	}
	still()
	for from, to := range map[string]string{nextCert: cert, nextKey: key} {
		require.NoError(t, os.Rename(from, to))
	}
	hang.Until(t, func() bool { name, _ := shown(); return name == "next" })
	still()

	old := ca.Client()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err := tls.Dial("tcp", address, old)
	require.ErrorContains(t, err, "protocol version")
	_, err = tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "certificate")
	resp := must.Get(http.Get("http://" + address + "/healthz"))(t)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "in clear nothing is answered")
}

// clocked knows the deadlines of a connection.
type clocked struct {
	*httptest.ResponseRecorder

	writing, reading time.Time
}

func (c *clocked) SetWriteDeadline(t time.Time) error { c.writing = t; return nil }
func (c *clocked) SetReadDeadline(t time.Time) error  { c.reading = t; return nil }

// slowly works between the pieces of long bodies, and notes the deadlines there.
type slowly struct {
	v1.Backups
	services.ProjectionKeeper

	c    *clocked
	seen []time.Time
}

func (s *slowly) work() { s.seen = append(s.seen, s.c.writing, s.c.reading) }

func (s *slowly) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply, error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	s.work()
	to.Piece(said("a"))
	s.work()
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

func (s *slowly) Verify(_ context.Context, _ string, _ int, progress func(done, of uint64) error,
	_ func(projections.Difference) error) (int, error) {
	s.work()
	err := progress(1, 2)
	s.work()
	return 2, err
}

func (s *slowly) Snapshot(_ context.Context, _ int, begin func(operate.Moment) (io.Writer, error)) error {
	s.work()
	to, err := begin(operate.Moment{})
	if err == nil {
		_, err = to.Write([]byte("piece"))
	}
	s.work()
	return err
}

func (s *slowly) Restore(_ context.Context, from io.Reader) (out services.Restored, err error) {
	s.work()
	_, err = from.Read(make([]byte, 1))
	s.work()
	return out, err
}

// TestWhoWorksBetweenPiecesHasNoDeadline: HTTP/2 ends a stream at its deadline, whether
// anybody writes or not, so that a model that thinks for longer than a client may take for a
// piece lost its stream, and a restore that took minutes its answer.
func TestWhoWorksBetweenPiecesHasNoDeadline(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"POST /v1/threads/t/messages/stream", "POST /v1/projections/p/verify",
		"GET /v1/partitions/0/snapshot", "POST /v1/restore"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			c := &clocked{ResponseRecorder: httptest.NewRecorder()}
			work := &slowly{c: c}
			s := bare(t, func(c *config) { c.Chat, c.Keeper, c.Backups = work, work, work })
			method, path, _ := strings.Cut(call, " ")
			body := ""
			if !strings.HasSuffix(path, "/verify") && !strings.HasSuffix(path, "/snapshot") {
				body = `{"content":"c"}`
			}
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.api.ServeHTTP(c, r)
			require.Equal(t, http.StatusOK, c.Code, c.Body)
			require.Equal(t, make([]time.Time, 4), work.seen, "none while it works")
			require.False(t, c.writing.IsZero(), "and one for the end of the answer")
		})
	}
}

// hanging is a command side that answers only when its caller gives up.
type hanging struct{ services.TurnWriter }

func (hanging) StartTurn(ctx context.Context, _ decide.Start) (services.Turn, error) {
	select {
	case <-ctx.Done():
		return services.Turn{}, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
	case <-time.After(hang.Limit):
		return services.Turn{}, errors.New("nobody gave up")
	}
}

func (h hanging) StartTurns(ctx context.Context, commands []decide.Start) []services.TurnOutcome {
	_, err := h.StartTurn(ctx, commands[0])
	return slices.Repeat([]services.TurnOutcome{{Err: err}}, len(commands))
}

// TestAWriteThatHangsEndsAtTheDeadline: a turn and a batch of turns are answered although the log does not answer.
func TestAWriteThatHangsEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := bare(t, func(c *config) { c.Turns, c.Deadline = hanging{}, 100*time.Millisecond })
	one := s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q"}`)
	requireProblem(t, one, http.StatusServiceUnavailable, "log_unavailable")
	rows := s.many(manyLine("s", "r1") + manyLine("s", "r2"))
	require.Len(t, rows, 2)
	for _, row := range rows {
		require.EqualValues(t, http.StatusServiceUnavailable, row["http_status"])
		require.Equal(t, "log_unavailable", row["code"])
	}
}

func zipped(t *testing.T, body string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must.Get(io.WriteString(w, body))(t)
	require.NoError(t, w.Close())
	return out.String()
}

func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	const encoding = "Content-Encoding"
	start := fresh + `}`
	encoder := must.Get(zstd.NewWriter(nil))(t)
	s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", zipped(t, start), encoding, "gzip")
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns", string(encoder.EncodeAll([]byte(start), nil)), encoding, "zstd")
	require.Len(t, s.many(zipped(t, manyLine("b", "r1")+manyLine("b", "r2")), encoding, "gzip"), 2)
	head := s.head()
	a := s.do("POST", "/v1/sessions/s/turns", start, encoding, "br")
	requireProblem(t, a, http.StatusUnsupportedMediaType, "unsupported_encoding")
	require.Equal(t, "gzip, zstd", a.header.Get("Accept-Encoding"))
	requireProblem(t, s.do("POST", "/v1/sessions/s/turns", start, encoding, "gzip"), http.StatusBadRequest, "malformed")
	for path, most := range map[string]int{"/v1/sessions/s/turns": 1 << 20, "/v1/turns": 8 << 20} {
		bomb := zipped(t, strings.Repeat(" ", 20*most))
		a := s.do("POST", path, bomb, encoding, "gzip")
		requireProblem(t, a, http.StatusRequestEntityTooLarge, "body_too_large")
	}
	require.Equal(t, head, s.head())
}

// raw sends a request whose path is not touched by any client.
func (s *stack) raw(method, path, body string) answer {
	s.t.Helper()
	c := must.Get(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(s.t)
	defer func() { _ = c.Close() }()
	must.Get(fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body))(s.t)
	resp := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(s.t)
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.raw = must.Get(io.ReadAll(resp.Body))(s.t)
	a.body = object(a.raw)
	return a
}

func TestIDsOfAllKinds(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, id := range []string{
		"a/b", "/", "a//b", "ünï", "a b", "a+b", "../", "..%2F", "x%25y", "%", "~", "~YQ", "...", "a.b", "?q=1&r", "#",
		";v=1", "日本語", "🙂",
		`"quoted"`, `back\slash`, "turns", "{session_id}", strings.Repeat("i", 256), "a*b>c",
	} {
		path := "/v1/sessions/" + url.PathEscape(id)
		turn := s.raw("POST", path+"/turns", `{"request_id":"r","question_neutral":"q"}`)
		require.Equal(t, http.StatusCreated, turn.status, "%q: %s", id, turn.raw)
		require.Equal(t, id, turn.body["session_id"])
		turn = s.raw("POST", path+"/turns/"+turn.body["turn_id"].(string)+"/finalize", `{"answer_neutral":"a"}`)
		require.Equal(t, http.StatusOK, turn.status, id)
		require.Len(t, s.raw("POST", path+"/context", `{"message":"m"}`).body["messages"], 3, id)
		got := s.raw("GET", path, "")
		require.Equal(t, id, got.body["session_id"])
		require.EqualValues(t, 1, got.body["turns"], id)
		require.Len(t, s.state(id).Turns, 1, id)
	}
}

func TestIDsThatAreNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, escaped := range []string{
		"", ".", "..", "%2E", "%2E%2E", "%2e%2E", "%00", "a%0Ab", "%7F", "%C2%85", "%FF", "a%C3", strings.Repeat("i",
			257), strings.Repeat("%C3%A4", 129),
	} {
		path := "/v1/sessions/" + escaped
		for _, call := range []struct{ method, path, body string }{
			{"POST", path + "/turns", `{"request_id":"r","question_neutral":"q"}`}, {"POST", path + "/reset", ""}, {"PUT", path + "/identity", `{"identity_id":"x"}`},
			{"GET", path + "/turns", ""}, {"GET", path + "/history", ""}, {"POST", path + "/context",
				`{"message":"m"}`},
		} {
			requireProblem(t, s.raw(call.method, call.path, call.body), http.StatusUnprocessableEntity,
				"invalid_argument", "session_id")
		}
	}
	requireProblem(t, s.raw("GET", "/v1/identities/%2E%2E/turns", ""), http.StatusUnprocessableEntity,
		"invalid_argument", "identity_id")
	require.Zero(t, s.head())
}

// A path is taken as it is: cleaned, it would be another call.
func TestNothingIsRedirected(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"//v1/sessions/s", "/v1/../healthz", "/healthz/", "/v1/sessions/s/",
		"/v1/sessions/s/turns/", "/docs/", "/./docs", "/v1/sessions/s/turns//finalize", "/v1//sessions/s"} {
		for _, method := range []string{"GET", "POST"} {
			a := s.raw(method, path, "")
			require.GreaterOrEqual(t, a.status, 400, path)
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), path)
			require.Empty(t, a.header.Get("Location"), path)
		}
	}
}
