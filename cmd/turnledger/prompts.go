package main

import (
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/rewriter"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
)

// prompts configures the context builder with what there is.
func (a *app) prompts() contextbuilder.Config {
	c := contextbuilder.Config{SystemPrompt: a.cfg.SystemPrompt, IdleTimeout: a.cfg.IdleTimeout}
	if counter, err := tokens.ForModel(a.cfg.ModelName); err != nil {
		a.logger.Warn("max_tokens is estimated", "err", err)
	} else if counter != nil {
		c.Tokens = counter
	}
	if m := a.snippets(); m != nil {
		c.Memory = steppedMemory{m, a.steps}
	}
	if a.cfg.RewriterURL != "" {
		c.Rewriter = steppedRewriter{rewriter.New(rewriter.Config{
			URL: a.cfg.RewriterURL, Key: a.cfg.RewriterKey, Model: a.cfg.RewriterModel(), Timeout: a.cfg.RewriterTimeout,
		}), a.steps}
	}
	return c
}
