package main

import (
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/summarizer"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/recall"
	"github.com/turnledger/turnledger/services/recall/supermemory"
)

// openMemory opens the configured external memory, if there is one. Otherwise the audit tables are the memory.
func (a *app) openMemory() error {
	if a.cfg.MemoryURL == "" {
		return nil
	}
	service := supermemory.New(a.cfg.MemoryAPI, supermemory.Config{URL: a.cfg.MemoryURL, Key: a.cfg.MemoryKey})
	c := recall.OutsideConfig{
		Config: runner.Config{Rules: a.cfg.Rules(), Follower: a.follower, Metrics: a.metrics, Logger: a.logger,
			Desk: a.views.Desk()},
		Feeds: a.roles.has(roleAudit), Registry: a.registry,
	}
	if !c.Feeds {
		a.logger.Info("the memory is fed by another process: one with the role audit must run")
	}
	a.memory = recall.NewOutside(a.store.Log, service, c)
	a.views.AddWorker(fleet.Worker{
		Name: a.memory.Name(), Runner: a.memory.Feed, Letters: a.memory.Letters, Applied: a.memory.Effect.Applied,
	})
	return nil
}

// openSummaries opens the effect that summarises sessions, if a model is configured for it.
func (a *app) openSummaries(reader *read.Reader) error {
	if a.cfg.SummaryURL == "" || !a.roles.has(roleAPI) {
		return nil
	}
	a.summaries = summarizer.NewService(a.store.Log, summarizer.ServiceConfig{
		Config: a.summarizes(reader),
		Feed: runner.Config{Rules: a.cfg.Rules(), Follower: a.follower, Metrics: a.metrics, Logger: a.logger,
			Desk: a.views.Desk()},
		Registry: a.registry,
	})
	a.views.AddWorker(fleet.Worker{
		Name: a.summaries.Name(), Runner: a.summaries.Feed, Letters: a.summaries.Letters,
	})
	return nil
}

// summarizes returns what summarises sessions.
func (a *app) summarizes(reader *read.Reader) summarizer.Config {
	return summarizer.Config{
		Model: openai.New(endpoint.Config{
			URL: a.cfg.SummaryURL, Key: a.cfg.SummaryKey, Name: a.cfg.SummaryModel(), Idle: a.cfg.ModelSilence,
			Setting: "TURNLEDGER_SUMMARY_URL",
		}),
		Sessions: reader, Summaries: a.history, After: a.cfg.SummaryAfter, Count: a.tokens, Logger: a.logger,
	}
}

// snippets returns the memory of prompts: the external memory, else the audit tables and the index of meanings, or nil
// if there is none of them.
func (a *app) snippets() services.Memory {
	erasures := projections.ErasureCheck{Log: a.store.Log}
	var words, meaning recall.Searcher
	if a.views.audit != nil {
		words = recall.Tables{Turns: a.lists}
	}
	if a.readsIndex() {
		meaning = recall.Meaning{Turns: a.searcher}
	}
	switch {
	case a.memory != nil:
		return a.memory.Snippets(erasures, a.cfg.MemoryBudget)
	case words != nil:
		return recall.NewSnippets(erasures, words, nil, a.cfg.MemoryBudget).WithMeaning(meaning)
	case meaning != nil:
		return recall.NewSnippets(erasures, meaning, nil, a.cfg.MemoryBudget)
	default:
		return nil
	}
}

// prompts returns the configuration of the context builder.
func (a *app) prompts() contextbuilder.Config {
	c := contextbuilder.Config{
		SystemPrompt: a.cfg.SystemPrompt, IdleTimeout: a.cfg.IdleTimeout, Blocks: a.cfg.WindowBlocks,
	}
	if counter, err := tokens.ForModel(a.cfg.ModelName); err != nil {
		a.logger.Warn("max_tokens is estimated", "err", err)
	} else if counter != nil {
		c.Tokens = counter
	}
	a.tokens = contextbuilder.Estimate{}.Count
	if c.Tokens != nil {
		a.tokens = c.Tokens.Count
	}
	c.Memory = a.snippets()
	if a.cfg.RewriterURL != "" {
		c.Rewriter = contextbuilder.ModelRewriter{
			Model: openai.New(endpoint.Config{
				URL: a.cfg.RewriterURL, Key: a.cfg.RewriterKey, Name: a.cfg.RewriterModel(),
				Idle: a.cfg.RewriterTimeout, Setting: "TURNLEDGER_REWRITER_URL",
			}),
			Timeout: a.cfg.RewriterTimeout,
		}
	}
	return c
}
