package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/identities"
	"github.com/turnledger/turnledger/services/memory"
	"github.com/turnledger/turnledger/services/memory/supermemory"
)

// outsideMemory is a memory that is another's service: fed by an effect of the log, in
// the role audit.
type outsideMemory struct {
	searcher  memory.Searcher
	forwarder *memory.Forwarder
	effect    *effects.Effect
	deletions *memory.Deletions
	feed      *runner.Runner // nil where another process feeds it
}

// openMemory makes the memory that is configured; nil where the audit tables are it.
func (a *app) openMemory(registry *prometheus.Registry, metrics *runner.Metrics) error {
	if a.cfg.MemoryURL == "" {
		return nil
	}
	js, err := jetstream.New(a.store.nc)
	if err != nil {
		return fmt.Errorf("open the memory's checkpoints: %w", err)
	}
	m := &outsideMemory{}
	to := supermemory.Config{URL: a.cfg.MemoryURL, Key: a.cfg.MemoryKey}
	var store memory.Store
	if a.cfg.MemoryAPI == "v4" {
		v4 := supermemory.NewV4(to)
		store, m.searcher = v4, v4
	} else {
		v5 := supermemory.NewV5(to)
		store, m.searcher = v5, v5
	}
	m.forwarder = memory.NewForwarder(store, a.store.log, a.cfg.Rules())
	m.effect = effects.New(js, m.forwarder, effects.Config{Replicas: a.cfg.Replicas, Log: a.store.log, Rules: a.cfg.Rules()})
	m.deletions = memory.NewDeletions(a.store.log, memory.DeletionsConfig{
		Rules: a.cfg.Rules(), Done: m.effect.Applied, Logger: a.logger,
	})
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnledger", Subsystem: "memory", Name: "withheld_scopes", Help: "Scopes of the memory that give nothing, since a deletion in them is not confirmed.",
	}, func() float64 { return float64(m.deletions.Withheld()) }))
	if desk := a.views.Desk(); a.roles.has(roleAudit) {
		m.feed = runner.New(a.store.log, m.effect, runner.Config{
			Rules: a.cfg.Rules(), MaxBatch: 64, Logger: a.logger, Metrics: metrics,
			Group: desk.Members(m.effect.Name(), nil), Desk: desk, Carry: m.effect.Carry,
		})
		a.views.Beside(m.effect.Name(), m.feed, desk.Queue(m.effect, a.store.log, a.cfg.Rules()), m.effect.Applied)
	} else {
		a.views.Beside(m.effect.Name(), nil, nil, m.effect.Applied)
		a.logger.Info("the memory is fed by another process: one with the role audit must run")
	}
	a.memory = m
	return nil
}

// run feeds the memory, and watches what it has to delete.
func (m *outsideMemory) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.deletions.Run(ctx) })
	if m.feed != nil {
		g.Go(func() error { return m.feed.Run(ctx) })
	}
	return g.Wait()
}

// snippets gives prompts their memory: that outside, or the audit tables; nil where
// there is neither.
func (a *app) snippets() services.Memory {
	budget := a.cfg.MemoryBudget
	switch {
	case a.memory != nil:
		return memory.NewSnippets(a.memory.searcher, a.memory.deletions.Confirmed, budget)
	case a.views.audit != nil:
		turns := tableMemory{a.views.audit, a.store.log, a.identities()}
		return memory.NewSnippets(turns, turns.confirmed, budget)
	default:
		return nil
	}
}

// tableMemory is a memory over the audit tables, which hold the turns of identities alone.
type tableMemory struct {
	tables *auditTables
	log    *jetlog.Log
	turns  *identities.Reader
}

// Search implements memory.Searcher.
func (i tableMemory) Search(ctx context.Context, scope memory.Scoped, query string, limit int) ([]memory.Found, error) {
	if scope.IdentityID == "" {
		return nil, nil
	}
	if erased, err := i.log.IdentityErasedNow(ctx, scope.IdentityID); err != nil || erased != nil {
		return nil, err
	}
	tables, err := i.tables.get()
	if err != nil {
		return nil, err
	}
	turns, err := tables.Recall(ctx, scope.IdentityID, query, limit)
	var out []memory.Found
	for _, t := range turns {
		out = append(out, memory.Found{TurnID: t.TurnID, Text: "User: " + t.Question + "\nAssistant: " + t.Answer})
	}
	return out, err
}

// confirmed waits until the tables hold all that the log does: then they hold nothing
// that was redacted before.
func (i tableMemory) confirmed(ctx context.Context, scope memory.Scoped) (bool, error) {
	if scope.IdentityID == "" {
		return true, nil
	}
	return true, i.turns.CaughtUp(ctx)
}
