package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ErrOpen says that the API would be open to others than this machine.
var ErrOpen = errors.New("without authentication the API listens on a loopback address only: make a key with turnledger keys create and set TURNLEDGER_AUTH=keys:FILE, or set TURNLEDGER_LISTEN=127.0.0.1:8480")

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

// local tells whether a Host header names an address or this machine, and no name
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

// Server serves a handler over HTTP.
type Server struct {
	handler http.Handler
	logger  *slog.Logger
	drain   time.Duration
}

// NewServer makes a server; it does no I/O. Requests under way have drain to end
// when it stops; 10 s by default.
func NewServer(h http.Handler, logger *slog.Logger, drain time.Duration) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if drain == 0 {
		drain = 10 * time.Second
	}
	return &Server{handler: h, logger: logger, drain: drain}
}

// Run serves on l until ctx ends: then it takes no more requests and returns nil
// when those under way are answered, or an error when they were not in time. What
// a handler needs must live until Run returns. l is closed.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	inner := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      3 * time.Minute, // a handler that streams lifts it with http.ResponseController
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		// Stopping must not cancel what is under way.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if streams, ok := s.handler.(interface{ EndStreams() }); ok {
		inner.RegisterOnShutdown(streams.EndStreams)
	}
	failed := make(chan error, 1)
	go func() { failed <- inner.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	return s.stop(context.WithoutCancel(ctx), inner, failed)
}

func (s *Server) stop(ctx context.Context, inner *http.Server, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, s.drain)
	defer cancel()
	err := inner.Shutdown(ctx)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", served)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("requests were still under way after %s", s.drain), inner.Close())
	}
	return nil
}
