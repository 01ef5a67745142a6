package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access/bearer"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/anthropic"
	"github.com/turnledger/turnledger/services/chat/endpoint"
	"github.com/turnledger/turnledger/services/chat/openai"
	"github.com/turnledger/turnledger/services/chat/presence"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/identities"
	"github.com/turnledger/turnledger/services/memory"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/replay"
	"github.com/turnledger/turnledger/services/tracing"
)

// app is a process in some roles: built, run, stopped.
type app struct {
	cfg    config.Config
	roles  roles
	logger *slog.Logger

	front    *front // the process's; it outlives the app, as the store does
	store    *store
	views    *views
	memory   *memory.Outside // nil where the audit tables are the memory
	history  *history.Service
	replay   *replay.Replay
	callers  *bearer.Callers // nil where nobody is asked who he is
	notes    *jetlog.Notes
	erasing  *erasing
	hashKey  []byte
	handler  backup.Handler
	traces   *tracing.Provider
	steps    *httpwire.Steps
	chatting *chat.Service // nil without the role
	registry *prometheus.Registry
	metrics  *runner.Metrics
	// still ends all that follows the log; replaced is closed when the app is to be opened again.
	still    func()
	replaced chan struct{}
}

// runApp listens, opens an app and runs it until ctx ends, and opens another where the log was replaced under it;
// opened is called with each. The address and the connection to NATS stay the same.
func runApp(ctx context.Context, cfg config.Config, roles roles, logger *slog.Logger, opened func(*app)) (err error) {
	f, err := openFront(ctx, cfg, logger)
	if err != nil {
		return err
	}
	// Where an app has run, the server has ended with it.
	defer func() { err = errors.Join(err, f.close()) }()
	store, err := openStore(ctx, cfg, logger)
	if err != nil {
		return err
	}
	defer store.close()
	for {
		a, err := openApp(ctx, &app{cfg: cfg, roles: roles, logger: logger, front: f, store: store})
		if err != nil {
			return err
		}
		opened(a)
		// Where the process was stopped while its log was replaced, the next start opens it.
		if again, err := a.run(ctx); err != nil || !again || ctx.Err() != nil {
			return err
		}
		if err := store.reopen(ctx, cfg); err != nil {
			return err
		}
	}
}

// openApp opens all that the roles need.
func openApp(ctx context.Context, a *app) (*app, error) {
	if err := a.open(ctx); err != nil {
		a.close(ctx)
		return nil, err
	}
	return a, nil
}

func (a *app) open(ctx context.Context) (err error) {
	if a.callers, err = a.cfg.Callers(a.logger); err != nil {
		return err
	}
	a.registry = prometheus.NewRegistry()
	a.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.metrics = runner.NewMetrics(a.registry)
	wanted := slices.ContainsFunc(tracing.Variables, func(name string) bool { return os.Getenv(name) != "" })
	if a.traces, err = tracing.Open(ctx, version, wanted); err != nil {
		return err
	}
	if err := a.openViews(ctx); err != nil {
		return err
	}
	if err := a.openMemory(); err != nil {
		return err
	}
	if err := a.openErasing(ctx); err != nil {
		return err
	}
	a.steps = httpwire.NewSteps(a.registry, a.traces)
	a.serve()
	return nil
}

// serve wires the HTTP API to what the roles have.
func (a *app) serve() {
	checks := a.checks()
	a.registry.MustRegister(a.views.Fleet, httpwire.Dependencies(checks))
	w := httpwire.Config{
		Registry: a.registry, Logger: a.logger, Traces: a.traces, Checks: checks,
		MaxRequests: a.cfg.MaxRequests, MaxStreams: a.cfg.MaxStreams, Open: a.callers == nil,
	}
	if a.callers != nil {
		w.Auth = a.callers
	}
	api := httpwire.New(w)
	c := v1.Config{
		Projections: a.views.Fleet, Keeper: a.views.Fleet, DeadLetters: a.views.DeadLetters(),
		Version: version, HashKey: a.hashKey, MaxBody: int64(a.cfg.MaxBody),
	}
	c.Deadline = a.cfg.RequestTimeout
	if l := ratelimit.New(a.cfg.RateSession, a.cfg.RateIdentity, nil); l != nil {
		c.Limiter = l
	}
	reader, builder := a.readSide()
	c.Owners = reader
	if a.roles.has(roleAPI) || a.roles.has(roleChat) || a.roles.has(roleEraser) {
		a.history = history.New(history.On(a.store.log), history.Config{
			Rules: a.cfg.Rules(), Policy: a.cfg.Policy(), FinalizeWithoutStart: a.cfg.FinalizeWithoutStart,
			Logger: a.logger,
		})
	}
	if a.roles.has(roleAPI) {
		c.Turns, c.SessionWrites, c.Erasures = a.history, a.history, a.history
	}
	c.Receipts = a.erasing.receipts
	c.Streams, c.Backups = operate.On(a.store.log), a.backups()
	if a.roles.has(roleEraser) {
		c.Retention = a.erasing.retention
	}
	if a.roles.has(roleContext) {
		c.Sessions, c.Contexts = reader, builder
		c.Identities = a.identities()
		a.replay = replay.New(a.store.log, a.logger)
		c.Events, c.MetadataKeys = a.replay, a.cfg.Rules().MetadataKeys
	}
	if a.roles.has(roleChat) {
		c.Chat = a.chat(reader, builder)
	}
	v1.Mount(api, c)
	a.handler = api
}

// readSide reads from the views that there are, and the log.
func (a *app) readSide() (*contextbuilder.Reader, chat.Contexts) {
	rc := contextbuilder.ReaderConfig{Rules: a.cfg.Rules(), Logger: a.logger}
	if a.views.recent != nil {
		rc.View = a.views.recent
	}
	if a.views.audit != nil {
		rc.Archive = a.views.audit
	}
	reader := contextbuilder.NewReader(a.store.log, rc)
	builder := contextbuilder.NewBuilder(reader, a.prompts())
	return reader, contextbuilder.SteppedBuilder{Builder: builder, Steps: a.steps}
}

// identities reads the turns of identities from the audit tables.
func (a *app) identities() *identities.Reader {
	tables := a.views.audit
	return identities.New(func() (identities.Tables, error) { return tables.Get() }, a.store.log, 0)
}

// chat answers with the model that is configured, or an echo.
func (a *app) chat(reader *contextbuilder.Reader, builder chat.Contexts) services.Chat {
	at := endpoint.Config{URL: a.cfg.ModelURL, Key: a.cfg.ModelKey, Name: a.cfg.ModelName, Idle: a.cfg.ModelSilence}
	var model chat.Model = chat.Echo{}
	switch {
	case at.URL == "":
	case a.cfg.Anthropic():
		model = anthropic.New(at)
	default:
		model = openai.New(at)
	}
	a.chatting = chat.New(chat.Config{
		Turns: a.history, Sessions: reader, Contexts: builder, Model: chat.SteppedModel{Model: model, Steps: a.steps},
		Presence: presence.New(a.store.nc, a.notes), OnPending: services.OnPending(a.cfg.OnPending), Logger: a.logger,
	})
	return a.chatting
}

// stopDeadline is how long requests in hand may take to end. answersDeadline is how long models may go on answering;
// after that their answers are broken off, so that the clients get an error and the turns stay pending.
const (
	stopDeadline    = 15 * time.Second
	answersDeadline = 10 * time.Second
)

// run serves until ctx ends. Then it takes no more requests, answers those in hand, lets the views commit the batches
// that they have begun, and closes everything. again is true if it ended because the log was replaced: the caller opens
// another app then.
func (a *app) run(ctx context.Context) (again bool, err error) {
	defer a.close(ctx)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	a.follow(life, g)
	if a.store.server != nil {
		g.Go(func() error { return a.store.server.Run(life) })
	}
	if a.callers != nil {
		g.Go(func() error { return a.callers.Run(life) })
	}
	if a.store.cert != nil {
		g.Go(func() error { return a.store.cert.Run(life) })
	}
	if a.chatting != nil {
		defer context.AfterFunc(ctx, func() { time.AfterFunc(answersDeadline, a.chatting.Stop) })()
	}
	a.front.open(ctx, a.handler)
	g.Go(func() error {
		// What handlers need lives until they are done.
		defer end()
		return a.untilDone(context.WithoutCancel(ctx), life)
	})
	err = g.Wait()
	select {
	case <-a.replaced:
		return true, err
	default:
		return false, err
	}
}

// untilDone waits until no request is in hand any more, and none comes.
func (a *app) untilDone(ctx, life context.Context) error {
	select {
	case <-a.front.ended:
		// Connections that were still open were closed, and their requests end: the store may not go before, since one
		// may be about to take back what it has restored.
		return a.front.Empty(ctx)
	case <-life.Done():
		_ = a.front.close() // again: runApp returns the error
	case <-a.replaced:
		// The last request in hand is the one that replaced the log, and its client waits for the answer. A client that
		// takes nothing is not waited for without end.
		if err := a.front.Empty(ctx); err != nil {
			a.logger.Warn("the app is closed under requests that don't end", "err", err)
		}
	}
	return nil
}

// follow begins what follows the log, which can be stopped while a request is still answered.
func (a *app) follow(ctx context.Context, g *errgroup.Group) {
	ctx, still := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, follow := range a.followers() {
		running.Add(1)
		g.Go(func() error {
			defer running.Done()
			return follow(ctx)
		})
	}
	a.replaced = make(chan struct{})
	a.still = func() {
		still()
		running.Wait()
	}
}

// followers is all that reads on in the log.
func (a *app) followers() []func(context.Context) error {
	out := []func(context.Context) error{a.store.log.Run, a.views.run, a.erasing.run}
	if a.history != nil {
		out = append(out, a.history.Run)
	}
	if a.replay != nil {
		out = append(out, a.replay.Run)
	}
	if a.memory != nil {
		out = append(out, a.memory.Run)
	}
	return out
}

func (a *app) close(ctx context.Context) {
	if a.traces != nil {
		a.traces.Close(ctx, a.logger)
	}
	if a.views != nil {
		a.views.Close()
	}
}
