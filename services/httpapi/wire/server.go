package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// ErrOpen says that other machines could reach the API without authentication.
var ErrOpen = errors.New("without authentication the API listens on a loopback address only: make a key with " +
	"turnledger keys create and set TURNLEDGER_AUTH=keys:FILE, or set TURNLEDGER_LISTEN=127.0.0.1:8480")

// CheckListen refuses an address that other machines can reach, unless requests are authenticated.
func CheckListen(addr string, authConfigured bool) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return errors.New("TURNLEDGER_LISTEN: want host:port, such as 127.0.0.1:8480")
	}
	if authConfigured || Loopback(addr) {
		return nil
	}
	return ErrOpen
}

// Loopback reports whether only this machine can reach an address, which is host:port.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// local reports whether a Host header holds an IP address or localhost. Any other name could belong to somebody who
// points it at this machine.
func local(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// ServerConfig bounds what connections may use. Zero values mean the defaults.
type ServerConfig struct {
	Logger *slog.Logger
	// Drain is how long running requests may take to end when the server stops; 10 s.
	Drain time.Duration
	// TLS is the certificate that the server shows; without it, it speaks plain HTTP.
	TLS *tls.Config
	// HeaderTimeout bounds how long a client may take to send the headers, 5 s; ReadTimeout the whole request, 30 s;
	// WriteTimeout the answer, 3 min; IdleTimeout how long an unused connection is kept, 2 min.
	HeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxHeader bounds the headers of a request in bytes; 64 KiB.
	MaxHeader int
	// MaxConnections bounds the open connections, 10,000; further ones wait.
	MaxConnections int
}

// Serve serves a handler on l until ctx ends. Then it accepts no more requests, waits for the running ones, and returns
// nil, or an error if they did not end in time. Callers keep open what the handler needs until Serve returns. Serve
// closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, cfg ServerConfig) error {
	logger := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	server := &http.Server{
		Handler:           h,
		TLSConfig:         cfg.TLS,
		ReadHeaderTimeout: cmp.Or(cfg.HeaderTimeout, 5*time.Second),
		ReadTimeout:       cmp.Or(cfg.ReadTimeout, 30*time.Second),
		WriteTimeout:      cmp.Or(cfg.WriteTimeout, 3*time.Minute), // handlers that stream lift it
		IdleTimeout:       cmp.Or(cfg.IdleTimeout, 2*time.Minute),
		MaxHeaderBytes:    cmp.Or(cfg.MaxHeader, 64<<10),
		ErrorLog:          slog.NewLogLogger(quiet{logger.Handler()}, slog.LevelWarn),
		// Stopping must not cancel running requests.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if streams, ok := h.(interface{ EndStreams() }); ok {
		server.RegisterOnShutdown(streams.EndStreams)
	}
	failed := make(chan error, 1)
	l = netutil.LimitListener(l, cmp.Or(cfg.MaxConnections, 10_000))
	go func() {
		if cfg.TLS != nil {
			failed <- server.ServeTLS(l, "", "")
			return
		}
		failed <- server.Serve(l)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	return stop(context.WithoutCancel(ctx), server, failed, cmp.Or(cfg.Drain, 10*time.Second))
}

func stop(ctx context.Context, server *http.Server, failed <-chan error, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	err := server.Shutdown(ctx)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", served)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("requests were still under way after %s", drain), server.Close())
	}
	return nil
}

// quiet lowers net/http's messages about single connections to level debug. Clients that don't speak TLS or that break
// off are not the operator's problem, and there may be many. It is for slog.NewLogLogger, which only calls Handle.
type quiet struct{ slog.Handler }

// Handle lowers the level of such a line.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") || strings.HasPrefix(r.Message, "http2:") {
		r.Level = slog.LevelDebug
	}
	if !q.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}
