package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/anthropic"
	"github.com/turnledger/turnledger/services/chat/openai"
	"github.com/turnledger/turnledger/services/chat/presence"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi"
	"github.com/turnledger/turnledger/services/httpapi/certfile"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/replay"
)

// app is a process in some roles: built, run, stopped.
type app struct {
	cfg    Config
	roles  roles
	logger *slog.Logger

	listener net.Listener
	store    *store
	views    *views
	memory   *outsideMemory // nil where the audit tables are the memory
	history  *history.Service
	replay   *replay.Replay
	callers  *callers       // nil where nobody is asked who he is
	cert     *certfile.Pair // of the API; nil where it speaks in clear
	erasing  *erasing
	handler  http.Handler
	traces   *trace.TracerProvider // nil where none are sent
}

// listen takes the address of the API. It comes before anything else is started,
// so that a taken port is known at once.
func listen(ctx context.Context, cfg Config) (net.Listener, error) {
	if err := httpapi.CheckListen(cfg.Listen, cfg.Auth != ""); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w (is another Turnledger running? set TURNLEDGER_LISTEN to another port)", cfg.Listen, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w (set TURNLEDGER_LISTEN to an address of this machine)", cfg.Listen, err)
	}
	return l, nil
}

// openApp opens all that the roles need; the listener is its own from now on.
func openApp(ctx context.Context, cfg Config, roles roles, l net.Listener, logger *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, roles: roles, logger: logger, listener: l}
	if err := a.open(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *app) open(ctx context.Context) (err error) {
	if a.callers, err = openCallers(a.cfg, a.logger); err != nil {
		return err
	}
	if a.cert, err = openPair("TURNLEDGER_TLS_CERT", a.cfg.TLSCert, a.cfg.TLSKey, a.logger); err != nil {
		return err
	}
	if a.cert == nil && httpapi.CheckListen(a.cfg.Listen, false) != nil {
		a.logger.Warn("keys and turns cross the network in clear: set TURNLEDGER_TLS_CERT and TURNLEDGER_TLS_KEY, or let only a proxy that ends TLS reach this address", "listen", a.cfg.Listen)
	}
	if a.store, err = openStore(ctx, a.cfg, a.logger); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := runner.NewMetrics(registry)
	if a.views, err = openViews(ctx, a.cfg, a.roles, a.store.log, metrics, a.logger); err != nil {
		return err
	}
	if err := a.views.openShadow(registry); err != nil {
		return err
	}
	if err := a.openMemory(metrics); err != nil {
		return err
	}
	if a.traces, err = openTraces(ctx); err != nil {
		return err
	}
	if err := a.openErasing(ctx); err != nil {
		return err
	}
	a.serve(registry)
	return nil
}

// serve wires the HTTP API to what the roles have.
func (a *app) serve(registry *prometheus.Registry) {
	queues := a.views.deadLetters()
	registry.MustRegister(letterCollector(queues))
	c := httpapi.Config{
		Projections: fed{a.views}, Keeper: fed{a.views}, DeadLetters: queues, Registry: registry, Logger: a.logger, Version: version, HashKey: []byte(a.cfg.HashKey),
		Checks:  []httpapi.Check{{Name: "log", Probe: a.store.ready}},
		MaxBody: int64(a.cfg.MaxBody), MaxRequests: a.cfg.MaxRequests, MaxStreams: a.cfg.MaxStreams, Deadline: time.Duration(a.cfg.RequestTimeout),
	}
	if a.traces != nil {
		c.Traces = a.traces
	}
	if l := ratelimit.New(a.cfg.RateSession, a.cfg.RateIdentity, nil); l != nil {
		c.Limiter = l
	}
	reader, builder := a.readSide()
	if c.Open = a.callers == nil; !c.Open {
		c.Auth, c.Owners = a.callers, sessions{reader}
		c.Checks = append(c.Checks, a.callers.checks()...)
	}
	if a.roles.has(roleAPI) || a.roles.has(roleChat) || a.roles.has(roleEraser) {
		a.history = history.New(a.store.log, history.Config{
			Rules: a.cfg.rules(), Policy: a.cfg.policy(), FinalizeWithoutStart: a.cfg.FinalizeWithoutStart, Logger: a.logger,
		})
	}
	if a.roles.has(roleAPI) {
		c.Turns, c.SessionWrites, c.Erasures = writer{a.history}, writer{a.history}, writer{a.history}
	}
	c.Receipts = receipts{a.erasing.receipts}
	if a.roles.has(roleEraser) {
		c.Retention = a.erasing
	}
	if a.roles.has(roleContext) {
		c.Sessions, c.Contexts = sessions{reader}, contexts{builder}
		c.Identities = identities{a.views.audit, a.store.log}
		a.replay = replay.New(a.store.log, a.logger)
		c.Events = eventLog{a.replay}
	}
	if a.roles.has(roleChat) {
		c.Chat = a.chat(reader, builder)
	}
	a.handler = httpapi.New(c)
}

// readSide reads from the views that there are, and the log.
func (a *app) readSide() (*contextbuilder.Reader, *contextbuilder.Builder) {
	rc := contextbuilder.ReaderConfig{Rules: a.cfg.rules(), Logger: a.logger}
	if a.views.recent != nil {
		rc.View = a.views.guarded()
	}
	if a.views.audit != nil {
		rc.Archive = a.views.audit
	}
	reader := contextbuilder.NewReader(a.store.log, rc)
	return reader, contextbuilder.NewBuilder(reader, a.prompts())
}

// chat answers with the model that is configured, or an echo.
func (a *app) chat(reader *contextbuilder.Reader, builder *contextbuilder.Builder) httpapi.Chat {
	var model chat.Model = chat.Echo{}
	switch {
	case a.cfg.ModelURL == "":
	case a.cfg.anthropic():
		model = anthropic.New(anthropic.Config{URL: a.cfg.ModelURL, Key: a.cfg.ModelKey, Name: a.cfg.ModelName})
	default:
		model = openai.New(openai.Config{URL: a.cfg.ModelURL, Key: a.cfg.ModelKey, Name: a.cfg.ModelName})
	}
	return chats{chat.New(chat.Config{
		Turns: chatTurns{a.history}, Sessions: chatSessions{reader}, Contexts: chatContexts{builder, model.Format()},
		Model: model, Presence: presence.New(a.store.nc), Policy: chat.Policy(a.cfg.OnPending), Logger: a.logger,
	})}
}

// stopDeadline is how long requests in hand may take to end.
const stopDeadline = 15 * time.Second

// run serves until ctx ends: then no request is taken any more, those in hand are
// answered, the views commit what they have begun, and all is closed.
func (a *app) run(ctx context.Context) error {
	defer a.close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	if a.history != nil {
		g.Go(func() error { return a.history.Run(life) })
	}
	if a.replay != nil {
		g.Go(func() error { return a.replay.Run(life) })
	}
	if a.store.server != nil {
		g.Go(func() error { return a.store.server.Run(life) })
	}
	if a.callers != nil {
		g.Go(func() error { return a.callers.run(life) })
	}
	for _, pair := range []*certfile.Pair{a.cert, a.store.cert} {
		if pair != nil {
			g.Go(func() error { return pair.Run(life) })
		}
	}
	g.Go(func() error { return a.views.run(life, a.roles) })
	if a.memory != nil {
		g.Go(func() error { return a.memory.run(life) })
	}
	g.Go(func() error { return a.erasing.run(life) })
	g.Go(func() error {
		// What handlers need lives until they are done.
		defer end()
		intake, stop := context.WithCancel(ctx)
		defer stop()
		context.AfterFunc(life, stop)
		return httpapi.NewServer(a.handler, a.cfg.server(a.cert, a.logger)).Run(intake, a.listener)
	})
	return g.Wait()
}

// endTraces sends the spans that are left.
func (a *app) endTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := a.traces.Shutdown(ctx); err != nil {
		a.logger.Warn("some traces were not sent", "err", err)
	}
}

func (a *app) close() {
	if a.listener != nil {
		_ = a.listener.Close()
	}
	if a.traces != nil {
		a.endTraces()
	}
	if a.views != nil {
		a.views.close()
	}
	if a.store != nil {
		a.store.close()
	}
}
