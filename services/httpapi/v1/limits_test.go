package v1_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access/certfile"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
)

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
	s := start(t)
	api := newAPI(config{wireConfig{Open: true, MaxRequests: 2, MaxStreams: 1}, v1Config{
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
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) { c.MaxBody = 2 << 10 })
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
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
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
	s := start(t)
	address := s.served(wire.ServerConfig{MaxConnections: 1})
	ask := func(c net.Conn) string {
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
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
	require.NoError(t, second.SetReadDeadline(time.Now().Add(20*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	require.NoError(t, err)
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
	pair, err := certfile.Open(certfile.Config{Cert: cert, Key: key, Every: 5 * time.Millisecond})
	require.NoError(t, err)
	natstest.Run(t, pair.Run)
	s := start(t)
	address := s.served(wire.ServerConfig{TLS: pair.Server()})
	shown := func() (string, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(), ForceAttemptHTTP2: true,
			DisableKeepAlives: true}}
		resp, err := client.Get("https://" + address + "/healthz")
		require.NoError(t, err)
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
		resp, err := kept.Get("https://" + address + "/healthz")
		require.NoError(t, err)
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
	_, err = tls.Dial("tcp", address, old)
	require.ErrorContains(t, err, "protocol version")
	_, err = tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "certificate")
	resp, err := http.Get("http://" + address + "/healthz")
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "in clear nothing is answered")
}
