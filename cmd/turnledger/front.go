package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/access/certfile"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/httpapi/console"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
)

// front is the HTTP server of a process. It outlives the apps behind it. While a log is replaced by a backup, the front
// keeps the address, so that no other process can take it, and answers 503.
type front struct {
	cfg      config.Config
	logger   *slog.Logger
	listener net.Listener
	cert     *certfile.Pair // nil where the server speaks plain HTTP

	// Door admits requests; it is shut while no app is open.
	*backup.Door

	// After serve was called: stop ends the server, ended is closed when it has ended, and err says why.
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// openFront listens. It comes before anything else is started, so that a taken port shows at once.
func openFront(ctx context.Context, cfg config.Config, logger *slog.Logger) (*front, error) {
	f := &front{cfg: cfg, logger: logger, Door: backup.NewDoor(closed), ended: make(chan struct{})}
	var err error
	if f.cert, err = cfg.API(logger); err != nil {
		return nil, err
	}
	if f.cert == nil && !httpwire.Loopback(cfg.Listen) {
		logger.Warn("keys and turns cross the network in clear: set TURNLEDGER_TLS_CERT and TURNLEDGER_TLS_KEY, or "+
			"let only a proxy that ends TLS reach this address", "listen", cfg.Listen)
	}
	f.listener, err = listen(ctx, cfg)
	return f, err
}

// listen listens on the API's address.
func listen(ctx context.Context, cfg config.Config) (net.Listener, error) {
	if err := httpwire.CheckListen(cfg.Listen, cfg.Auth != ""); err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrUsage, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil,
			fmt.Errorf("listen on %s: %w (is another Turnledger running? set TURNLEDGER_LISTEN to another port)",
				cfg.Listen, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w (set TURNLEDGER_LISTEN to an address of this machine)", cfg.Listen,
			err)
	}
	return l, nil
}

// serve answers requests until ctx ends or close is called, and then waits for the running ones. Until the first open,
// requests wait.
func (f *front) serve(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.ended)
		g, life := errgroup.WithContext(context.WithoutCancel(ctx))
		life, end := context.WithCancel(life)
		if f.cert != nil {
			g.Go(func() error { return f.cert.Run(life) })
		}
		g.Go(func() error {
			defer end()
			return httpwire.Serve(ctx, f.listener, f, f.server())
		})
		f.err = g.Wait()
	}()
}

// server returns the bounds of connections; the API bounds requests.
func (f *front) server() httpwire.ServerConfig {
	s := httpwire.ServerConfig{
		Logger: f.logger, Drain: stopDeadline, HeaderTimeout: f.cfg.HeaderTimeout, ReadTimeout: f.cfg.ReadTimeout,
		IdleTimeout: f.cfg.KeepTimeout, MaxHeader: int(f.cfg.MaxHeader), MaxConnections: f.cfg.MaxConnections,
		WriteTimeout: max(3*time.Minute, f.cfg.RequestTimeout+f.cfg.ReadTimeout),
	}
	if f.cert != nil {
		s.TLS = f.cert.Server()
	}
	return s
}

// close ends the server, waits for the running requests, and frees the address.
func (f *front) close() error {
	if f.stop == nil {
		return f.listener.Close()
	}
	f.stop()
	<-f.ended
	return f.err
}

// open lets requests through to a handler; the first call starts the server.
func (f *front) open(ctx context.Context, h backup.Handler) {
	f.Open(h)
	if f.stop == nil {
		f.serve(ctx)
	}
}

// closed answers while no app is open because its log is being replaced.
var closed = httpwire.Closed(
	"log", "the log is being replaced by a backup: come again when the header Retry-After says so", v1.Form(),
	console.Form(), openai.Form(),
)
