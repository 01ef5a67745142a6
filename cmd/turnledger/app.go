package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access/bearer"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/answer/presence"
	"github.com/turnledger/turnledger/services/answer/relay"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/summarizer"
	"github.com/turnledger/turnledger/services/contextbuilder/whatif"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/export"
	"github.com/turnledger/turnledger/services/export/explain"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/read/search"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/replay"
	"github.com/turnledger/turnledger/services/write"
)

// app is a process in some roles: it is built, run and stopped.
type app struct {
	cfg    config.Config
	roles  roles
	logger *slog.Logger

	front    *front // the process's; it outlives the app, as the store does
	store    logStore
	views    *views
	memory   *recall.Outside // nil where the audit tables are the memory
	follower *follower.Follower
	// summaries are made by a model; nil if none is configured, or other processes make them.
	summaries *summarizer.Service
	history   *write.Service
	owners    *owners.Index
	replay    *replay.Replay
	callers   *bearer.Callers
	notes     *jetlog.Notes
	receipts  *eraser.Receipts
	eraser    *eraser.Service // nil without the role
	hashKey   []byte
	// consoleKey seals the cookies of the web console.
	consoleKey []byte
	// streamKey seals answers between processes; "": they are watched in their own.
	streamKey string
	// itemKey makes the ids of items.
	itemKey []byte
	// promptKey makes the digests of prompts; empty where there is none.
	promptKey []byte
	tokens    func(text string) int // counts as prompts do
	lists     *read.Lists
	searcher  *search.Searcher
	handler   backup.Handler
	traces    *traces
	answers   *answer.Service
	registry  *prometheus.Registry
	metrics   *runner.Metrics
	// still stops everything that follows the log; replaced is closed when the app is to be opened again.
	still    func()
	replaced chan struct{}
}

// runApp listens, opens an app and runs it until ctx ends. If the app's log is replaced, it opens another app. It calls
// opened with each. The address and the connection to NATS stay the same.
func runApp(ctx context.Context, cfg config.Config, roles roles, logger *slog.Logger, opened func(*app)) (err error) {
	f, err := openFront(ctx, cfg, logger)
	if err != nil {
		return err
	}
	// After an app has run, the server has ended with it.
	defer func() { err = errors.Join(err, f.close()) }()
	if cfg.Pprof != "" {
		profiles, err := httpwire.OpenProfiles(ctx, cfg.Pprof)
		if err != nil {
			return err
		}
		defer func() { _ = profiles.Close() }()
		logger.Info("profiles", "url", "http://"+profiles.Addr+"/debug/pprof/")
	}
	store, err := openStore(ctx, cfg, logger)
	if err != nil {
		return err
	}
	defer store.Close()
	for {
		a, err := openApp(ctx, &app{cfg: cfg, roles: roles, logger: logger, front: f, store: store})
		if err != nil {
			return err
		}
		opened(a)
		// If the process is stopped while its log is replaced, the next start opens the new log.
		if again, err := a.run(ctx); err != nil || !again || ctx.Err() != nil {
			return err
		}
		if err := store.Reopen(ctx); err != nil {
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
	if a.traces, err = openTraces(ctx); err != nil {
		return err
	}
	following := follower.Config{Rules: a.cfg.Rules(), Logger: a.logger}
	if a.store.Server != nil {
		following.Loads, following.PauseFactor, following.Sessions = 1, 2, jetlog.Slowly{Log: a.store.Log}
	}
	a.follower = follower.New(a.store.Log, following)
	if err := a.openViews(ctx); err != nil {
		return err
	}
	if err := a.openMemory(); err != nil {
		return err
	}
	if a.notes, err = a.store.notes(ctx); err != nil {
		return err
	}
	if err := a.keepKeys(ctx); err != nil {
		return err
	}
	if a.roles.has(roleAPI) || a.roles.has(roleChat) || a.roles.has(roleEraser) {
		a.history = write.New(write.On(a.store.Log), write.Config{
			Rules: a.cfg.Rules(), Policy: a.cfg.Policy(), FinalizeWithoutStart: a.cfg.FinalizeWithoutStart,
			Follower: a.follower, Logger: a.logger,
		})
	}
	a.owners = owners.On(a.store.Log, a.follower, a.logger)
	a.openErasing()
	return a.serve()
}

// serve connects the HTTP API to the services of the roles.
func (a *app) serve() error {
	reader, builder := a.readSide()
	if err := a.openSummaries(reader); err != nil {
		return err
	}
	checks := a.checks()
	a.registry.MustRegister(a.views.Fleet, httpwire.Dependencies(checks))
	w := httpwire.Config{
		Registry: a.registry, Logger: a.logger, Traces: a.traces, Checks: checks,
		MaxRequests: a.cfg.MaxRequests, MaxStreams: a.cfg.MaxStreams, Open: a.callers.Open(),
		Origins: a.cfg.CORSOrigins, Auth: a.callers,
	}
	api := httpwire.New(w)
	c := v1.Config{ItemKey: string(a.itemKey), MaxBody: int64(a.cfg.MaxBody), Ports: services.Ports{
		Projections: a.views.Fleet, Keeper: a.views.Fleet, DeadLetters: a.views.DeadLetters(), Receipts: a.receipts,
		Lookup: reader, Keys: a.keys(), Tokens: a.callers.Tokens, HashKey: a.hashKey, Version: version,
		Rules: services.Rules{Deadline: a.cfg.RequestTimeout, LinkReader: reader},
	}}
	if l := ratelimit.New(a.cfg.RateSession, a.cfg.RateIdentity, nil); l != nil {
		c.Limiter = l
	}
	if a.roles.has(roleAPI) {
		c.Turns, c.SessionWrites, c.Erasures = a.history, a.history, a.history
		c.Messages = a.history
	}
	c.Streams, c.Backups = operate.On(a.store.Log), a.backups()
	if a.eraser != nil {
		c.Retention = a.eraser.Retention
	}
	if a.roles.has(roleContext) {
		c.Sessions, c.Contexts = reader, builder
		c.Identities, c.Lists, c.Counts = a.lists, a.lists, a.lists
		search := a.steppedSearcher()
		c.Search, c.Similar = search, search
		a.replay = replay.New(a.store.Log, a.owners)
		c.Events, c.MetadataKeys = a.replay, a.cfg.Rules().MetadataKeys
		c.Explain = explain.Service{Events: c.Events, Sessions: reader, Contexts: c.Contexts}
		c.People = export.People{Events: c.Events, Sessions: reader, Receipts: a.receipts}
		c.WhatIfs = whatif.Service{
			Walk:   func(ctx context.Context, id string) (whatif.Walk, error) { return reader.Walk(ctx, id) },
			Events: c.Events, Prompts: builder, Key: a.promptKey,
		}
	}
	a.answers = a.answerer(reader, builder)
	if a.roles.has(roleChat) {
		c.Chat, c.Running, c.Responses = a.answers, a.answers, a.answers
		c.MaxChatBody = int64(a.cfg.OpenAIBody)
	}
	v1.Mount(api, c)
	a.mountOpenAI(api, c.Ports, reader)
	a.mountMCP(api)
	if a.hasConsole() {
		a.mountConsole(api, c.Ports)
	}
	a.handler = api
	return nil
}

// readSide reads from the views and the log.
func (a *app) readSide() (*read.Reader, *contextbuilder.Builder) {
	rc := read.Config{Rules: a.cfg.Rules(), Logger: a.logger}
	if a.views.recent != nil {
		rc.View = a.views.recent
	}
	if a.views.audit != nil {
		rc.Archive = a.views.audit
	}
	if a.history != nil {
		rc.Folds = a.history
	}
	reader := read.New(a.store.Log, rc)
	tables := a.views.audit
	a.lists = read.NewLists(a.store.Log, read.ListsConfig{
		Tables: func() (read.Tables, error) { return tables.Get() }, Sessions: reader, TTL: a.cfg.SessionTTL,
	})
	a.openSearcher()
	builder := contextbuilder.NewBuilder(reader, a.prompts())
	return reader, builder
}

// answerer answers with the configured model, or an echo. In a process without the role it only adds to conversations.
func (a *app) answerer(reader *read.Reader, builder answer.Contexts) *answer.Service {
	c := answer.Config{
		Ports: services.Ports{
			Turns: a.history, Messages: a.history, SessionWrites: a.history, Lookup: reader, Sessions: reader,
		},
		States: reader, Questions: reader, Contexts: builder, Log: a.store.Log, IDs: items.Minter{Key: a.itemKey},
		Logger: a.logger,
	}
	if !a.roles.has(roleChat) {
		return answer.New(c)
	}
	c.Model = answer.Echo{}
	if a.cfg.ModelURL != "" {
		c.Model = model.New(a.cfg.ModelAPI, endpoint.Config{
			URL: a.cfg.ModelURL, Key: a.cfg.ModelKey, Name: a.cfg.ModelName, Idle: a.cfg.ModelSilence,
			MaxTokens: a.cfg.ModelMaxTokens,
		})
	}
	c.Model = answer.SteppedModel{
		Model: c.Model, Measures: answer.NewMeasures(a.registry, model.Provider(a.cfg.ModelAPI, a.cfg.ModelURL)),
	}
	c.Presence, c.OnPending = presence.New(a.store.NC, a.notes), services.OnPending(a.cfg.OnPending)
	c.OnDisconnect = services.OnDisconnect(a.cfg.OnDisconnect)
	if a.streamKey != "" {
		c.Relay = relay.New(a.store.NC, a.streamKey)
	}
	if a.cfg.SummaryURL != "" {
		c.Summarizer = summarizer.New(a.summarizes(reader))
	}
	c.Summaries, c.Output, c.Count = a.cfg.SummaryURL != "", respond.Output, a.tokens
	c.Context, c.MaxAnswer, c.PromptKey = a.cfg.ModelContext, a.cfg.ModelMaxTokens, a.promptKey
	c.SessionOf = func(ctx context.Context, name string) (string, error) {
		return eraser.SessionOfErased(ctx, a.notes, name)
	}
	return answer.New(c)
}

// stopDeadline bounds how long running requests may take to end. answersDeadline bounds how long models may go on
// answering. After that their answers are cut off: the clients get an error, and the turns stay pending.
const (
	stopDeadline    = 15 * time.Second
	answersDeadline = 10 * time.Second
)

// run serves until ctx ends. Then it accepts no more requests, completes the running ones, lets the views commit the
// batches that they have begun, and closes everything. again is true if it ended because the log was replaced; the
// caller then opens another app.
func (a *app) run(ctx context.Context) (again bool, err error) {
	defer a.close(ctx)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	a.follow(life, g)
	if a.store.Server != nil {
		g.Go(func() error { return a.store.Server.Run(life) })
	}
	g.Go(func() error { return a.callers.Run(life) })
	if a.store.cert != nil {
		g.Go(func() error { return a.store.cert.Run(life) })
	}
	defer context.AfterFunc(ctx, func() {
		a.answers.Leave()
		time.AfterFunc(answersDeadline, a.answers.Stop)
	})()
	a.front.open(ctx, a.handler)
	g.Go(func() error {
		// The handlers' dependencies live until the handlers are done.
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

// untilDone waits until no request is running, and no more can come.
func (a *app) untilDone(ctx, life context.Context) error {
	select {
	case <-a.front.ended:
		// Connections that were still open were closed, and their requests end. The store must stay open until then,
		// since one of these requests may be undoing a restore.
		err := a.front.Empty(ctx)
		a.answers.Wait() // Stop bounds what runs in the background
		return err
	case <-life.Done():
		_ = a.front.close() // again: runApp returns the error
	case <-a.replaced:
		// The last running request is the restore that replaced the log, and its client waits for the answer. The wait
		// is bounded, since the client may read nothing.
		if err := a.front.Empty(ctx); err != nil {
			a.logger.Warn("the app is closed under requests that don't end", "err", err)
		}
	}
	return nil
}

// follow starts everything that follows the log. It can be stopped while a request is still answered.
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

// followers returns everything that follows the log.
func (a *app) followers() []func(context.Context) error {
	out := []func(context.Context) error{a.store.Log.Run, a.follower.Run, a.views.run}
	if a.eraser != nil {
		out = append(out, a.eraser.Run)
	}
	if a.history != nil {
		out = append(out, a.history.Run)
	}
	switch {
	case a.replay != nil:
		out = append(out, a.replay.Run)
	case a.eraser != nil:
		out = append(out, func(ctx context.Context) error { return a.owners.Run(ctx) })
	}
	if a.summaries != nil {
		out = append(out, a.summaries.Feed.Run)
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
