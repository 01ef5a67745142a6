package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/rewriter"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
	"github.com/turnledger/turnledger/services/memory"
	"github.com/turnledger/turnledger/services/memory/supermemory"
)

// openMemory opens the memory that is configured; there is none where the audit tables are it.
func (a *app) openMemory() error {
	if a.cfg.MemoryURL == "" {
		return nil
	}
	js, err := jetstream.New(a.store.nc)
	if err != nil {
		return fmt.Errorf("open the memory's checkpoints: %w", err)
	}
	to := supermemory.Config{URL: a.cfg.MemoryURL, Key: a.cfg.MemoryKey}
	var service memory.Service = supermemory.NewV5(to)
	if a.cfg.MemoryAPI == "v4" {
		service = supermemory.NewV4(to)
	}
	c := memory.OutsideConfig{
		Config:   runner.Config{Rules: a.cfg.Rules(), Metrics: a.metrics, Logger: a.logger},
		Replicas: a.cfg.Replicas, Registry: a.registry,
	}
	if a.roles.has(roleAudit) {
		c.Desk = a.views.Desk()
	} else {
		a.logger.Info("the memory is fed by another process: one with the role audit must run")
	}
	a.memory = memory.NewOutside(a.store.log, js, service, c)
	a.views.Beside(a.memory.Name(), a.memory.Feed, a.memory.Letters, a.memory.Effect.Applied)
	return nil
}

// snippets returns the memory of prompts: the memory outside, else the audit tables, and nil if there is neither.
func (a *app) snippets() services.Memory {
	switch {
	case a.memory != nil:
		return memory.NewSnippets(a.memory, a.memory.Deletions.Confirmed, a.cfg.MemoryBudget)
	case a.views.audit != nil:
		tables := memory.Tables{
			Open: func() (memory.Recaller, error) { return a.views.audit.Get() },
			Erased: func(ctx context.Context, identityID string) (bool, error) {
				erased, err := a.store.log.IdentityErasedNow(ctx, identityID)
				return erased != nil, err
			},
			CaughtUp: a.identities().CaughtUp,
		}
		return memory.NewSnippets(tables, tables.Confirmed, a.cfg.MemoryBudget)
	default:
		return nil
	}
}

// prompts configures the context builder with what there is.
func (a *app) prompts() contextbuilder.Config {
	c := contextbuilder.Config{SystemPrompt: a.cfg.SystemPrompt, IdleTimeout: a.cfg.IdleTimeout}
	if counter, err := tokens.ForModel(a.cfg.ModelName); err != nil {
		a.logger.Warn("max_tokens is estimated", "err", err)
	} else if counter != nil {
		c.Tokens = counter
	}
	if m := a.snippets(); m != nil {
		c.Memory = contextbuilder.SteppedMemory{Memory: m, Steps: a.steps}
	}
	if a.cfg.RewriterURL != "" {
		c.Rewriter = contextbuilder.SteppedRewriter{Steps: a.steps, Rewriter: rewriter.New(rewriter.Config{
			URL: a.cfg.RewriterURL, Key: a.cfg.RewriterKey, Model: a.cfg.RewriterModel(),
			Timeout: a.cfg.RewriterTimeout,
		})}
	}
	return c
}
