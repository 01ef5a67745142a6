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

// ErrOpen says that the API would be open to others than this machine.
var ErrOpen = errors.New("without authentication the API listens on a loopback address only: make a key with " +
	"turnledger keys create and set TURNLEDGER_AUTH=keys:FILE, or set TURNLEDGER_LISTEN=127.0.0.1:8480")

// CheckListen holds the address to listen on against whether requests are
// authenticated.
func CheckListen(addr string, authConfigured bool) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return errors.New("TURNLEDGER_LISTEN: want host:port, such as 127.0.0.1:8480")
	}
	if authConfigured || loopback(addr) {
		return nil
	}
	return ErrOpen
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// local reports whether a Host header names an address or this machine, and no name
// that somebody else may have pointed here.
func local(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// ServerConfig bounds what connections may take. Zero values are the defaults.
type ServerConfig struct {
	Logger *slog.Logger
	// Drain is how long requests under way have to end when the server stops; 10 s.
	Drain time.Duration
	// TLS is the certificate that the server shows; without it, it speaks plain HTTP.
	TLS *tls.Config
	// HeaderTimeout is how long a client may take for the headers, 5 s; ReadTimeout for all
	// of a request, 30 s; WriteTimeout how long an answer may take, 3 min; IdleTimeout how
	// long a connection is kept that nothing is asked on, 2 min.
	HeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxHeader bounds the headers of a request in bytes; 64 KiB.
	MaxHeader int
	// MaxConnections are those that are open at once, 10,000; more wait.
	MaxConnections int
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for field, value := range map[*time.Duration]time.Duration{
		&c.Drain: 10 * time.Second, &c.HeaderTimeout: 5 * time.Second, &c.ReadTimeout: 30 * time.Second,
		&c.WriteTimeout: 3 * time.Minute, &c.IdleTimeout: 2 * time.Minute,
	} {
		*field = cmp.Or(*field, value)
	}
	c.MaxHeader, c.MaxConnections = cmp.Or(c.MaxHeader, 64<<10), cmp.Or(c.MaxConnections, 10_000)
	return c
}

// Server serves a handler over HTTP.
type Server struct {
	handler http.Handler
	cfg     ServerConfig
}

// NewServer makes a server; it does no I/O.
func NewServer(h http.Handler, cfg ServerConfig) *Server {
	return &Server{handler: h, cfg: cfg.withDefaults()}
}

// Run serves on l until ctx ends: then it takes no more requests and returns nil
// when those under way are answered, or an error when they were not in time. What
// a handler needs must live until Run returns. l is closed.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	inner := &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.cfg.TLS,
		ReadHeaderTimeout: s.cfg.HeaderTimeout,
		ReadTimeout:       s.cfg.ReadTimeout,
		WriteTimeout:      s.cfg.WriteTimeout, // a handler that streams lifts it with http.ResponseController
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeader,
		ErrorLog:          slog.NewLogLogger(quiet{s.cfg.Logger.Handler()}, slog.LevelWarn),
		// Stopping must not cancel what is under way.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if streams, ok := s.handler.(interface{ EndStreams() }); ok {
		inner.RegisterOnShutdown(streams.EndStreams)
	}
	failed := make(chan error, 1)
	l = netutil.LimitListener(l, s.cfg.MaxConnections)
	go func() {
		if s.cfg.TLS != nil {
			failed <- inner.ServeTLS(l, "", "")
			return
		}
		failed <- inner.Serve(l)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	return s.stop(context.WithoutCancel(ctx), inner, failed)
}

func (s *Server) stop(ctx context.Context, inner *http.Server, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Drain)
	defer cancel()
	err := inner.Shutdown(ctx)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", served)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("requests were still under way after %s", s.cfg.Drain), inner.Close())
	}
	return nil
}

// quiet lets what net/http says of a single connection be a debug line: clients that
// don't speak TLS, or break off, are no trouble of the operator, and there may be many.
type quiet struct{ slog.Handler }

// Handle lowers the level of such a line.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	for _, of := range []string{"http: TLS handshake error", "http2:"} {
		if strings.HasPrefix(r.Message, of) {
			r.Level = slog.LevelDebug
		}
	}
	if !q.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs keeps the levels as they are here.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps the levels as they are here.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
