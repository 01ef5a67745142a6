package main

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/ratelimit"
)

// promptConfig is what prompts and chat are told (docs/contract.md#environment).
type promptConfig struct {
	SystemPrompt string `help:"System prompt of contexts that bring none." env:"TURNLEDGER_SYSTEM_PROMPT"`

	ModelURL     string   `name:"model-url" help:"Endpoint of the chat model, up to its version; unset: dev answers with an echo." env:"TURNLEDGER_MODEL_URL"`
	ModelName    string   `name:"model-name" help:"Name of the model; its encoding counts max_tokens." env:"TURNLEDGER_MODEL_NAME"`
	ModelKey     string   `name:"model-key" help:"Key of the endpoint." env:"TURNLEDGER_MODEL_KEY"`
	ModelAPI     string   `name:"model-api" help:"What the endpoint speaks: openai or anthropic; auto goes by the address." default:"auto" env:"TURNLEDGER_MODEL_API"`
	ModelSilence Duration `name:"model-silence" help:"How long the model may say nothing before its answer is given up; models that think, or are loaded first, need longer." default:"30s" env:"TURNLEDGER_MODEL_SILENCE"`
	OnPending    string   `name:"on-pending" help:"What chat does with a message while another is being answered: reject, enqueue or interrupt." default:"enqueue" env:"TURNLEDGER_ON_PENDING"`

	RewriterURL     string   `name:"rewriter-url" help:"OpenAI-compatible endpoint of the query rewriter; unset: rewrite falls back to the message." env:"TURNLEDGER_REWRITER_URL"`
	RewriterName    string   `name:"rewriter-name" help:"Name of its model; that of the chat model by default." env:"TURNLEDGER_REWRITER_NAME"`
	RewriterKey     string   `name:"rewriter-key" help:"Key of the endpoint." env:"TURNLEDGER_REWRITER_KEY"`
	RewriterTimeout Duration `name:"rewriter-timeout" help:"How long a rewrite may take." default:"5s" env:"TURNLEDGER_REWRITER_TIMEOUT"`

	MemoryURL    string   `name:"memory-url" help:"Supermemory's address for long-term memory; unset: the audit tables." env:"TURNLEDGER_MEMORY_URL"`
	MemoryKey    string   `name:"memory-key" help:"Key of it." env:"TURNLEDGER_MEMORY_KEY"`
	MemoryAPI    string   `name:"memory-api" help:"Version of Supermemory's API: v5 or v4." default:"v5" env:"TURNLEDGER_MEMORY_API"`
	MemoryBudget Duration `name:"memory-budget" help:"How long a prompt waits for the memory." default:"300ms" env:"TURNLEDGER_MEMORY_BUDGET"`

	RateSession  ratelimit.Rate `name:"rate-session" help:"Turns, and contexts, that a session may ask for, such as 60/m; off: no limit." default:"off" env:"TURNLEDGER_RATE_SESSION"`
	RateIdentity ratelimit.Rate `name:"rate-identity" help:"The same of an identity over all its sessions." default:"off" env:"TURNLEDGER_RATE_IDENTITY"`
}

// rewriterModel is the rewriter's own, or the chat's.
func (c promptConfig) rewriterModel() string {
	if c.RewriterName != "" {
		return c.RewriterName
	}
	return c.ModelName
}

// anthropic tells whether the chat model's endpoint speaks Anthropic's protocol.
func (c promptConfig) anthropic() bool {
	u, err := url.Parse(c.ModelURL)
	return c.ModelAPI == "anthropic" || c.ModelAPI == "auto" && err == nil && u.Hostname() == "api.anthropic.com"
}

func (c promptConfig) validate(complain func(name, format string, args ...any)) {
	if !slices.Contains([]services.OnPending{services.Reject, services.Enqueue, services.Interrupt}, services.OnPending(c.OnPending)) {
		complain("TURNLEDGER_ON_PENDING", "must be reject, enqueue or interrupt")
	}
	for name, address := range map[string]string{"TURNLEDGER_MODEL_URL": c.ModelURL, "TURNLEDGER_REWRITER_URL": c.RewriterURL, "TURNLEDGER_MEMORY_URL": c.MemoryURL} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			complain(name, "must be a URL such as https://api.openai.com/v1")
		}
	}
	if c.ModelURL != "" && c.ModelName == "" {
		complain("TURNLEDGER_MODEL_NAME", "is needed with TURNLEDGER_MODEL_URL")
	}
	if c.RewriterURL != "" && c.rewriterModel() == "" {
		complain("TURNLEDGER_REWRITER_NAME", "is needed with TURNLEDGER_REWRITER_URL")
	}
	if !slices.Contains([]string{"auto", "openai", "anthropic"}, c.ModelAPI) {
		complain("TURNLEDGER_MODEL_API", "must be auto, openai or anthropic")
	}
	if !slices.Contains([]string{"v5", "v4"}, c.MemoryAPI) {
		complain("TURNLEDGER_MEMORY_API", "must be v5 or v4")
	}
	if d := time.Duration(c.ModelSilence); d <= 0 || d > 2*time.Minute {
		complain("TURNLEDGER_MODEL_SILENCE", "must be above 0 and at most 2m, the time of an answer")
	}
	if d := time.Duration(c.MemoryBudget); d <= 0 || d > 10*time.Second {
		complain("TURNLEDGER_MEMORY_BUDGET", "must be above 0 and at most 10s")
	}
	if d := time.Duration(c.RewriterTimeout); d <= 0 || d > time.Minute {
		complain("TURNLEDGER_REWRITER_TIMEOUT", "must be above 0 and at most 1m")
	}
}

// rows are the settings as the verb config prints them.
func (c promptConfig) rows() []setting {
	return []setting{
		{"TURNLEDGER_SYSTEM_PROMPT", given(c.SystemPrompt)},
		{"TURNLEDGER_MODEL_URL", secretless(c.ModelURL)},
		{"TURNLEDGER_MODEL_NAME", c.ModelName},
		{"TURNLEDGER_MODEL_KEY", given(c.ModelKey)},
		{"TURNLEDGER_MODEL_API", c.ModelAPI},
		{"TURNLEDGER_MODEL_SILENCE", c.ModelSilence.String()},
		{"TURNLEDGER_ON_PENDING", c.OnPending},
		{"TURNLEDGER_REWRITER_URL", secretless(c.RewriterURL)},
		{"TURNLEDGER_REWRITER_NAME", c.RewriterName},
		{"TURNLEDGER_REWRITER_KEY", given(c.RewriterKey)},
		{"TURNLEDGER_REWRITER_TIMEOUT", c.RewriterTimeout.String()},
		{"TURNLEDGER_MEMORY_URL", secretless(c.MemoryURL)},
		{"TURNLEDGER_MEMORY_KEY", given(c.MemoryKey)},
		{"TURNLEDGER_MEMORY_API", c.MemoryAPI},
		{"TURNLEDGER_MEMORY_BUDGET", c.MemoryBudget.String()},
		{"TURNLEDGER_RATE_SESSION", fmt.Sprint(c.RateSession)},
		{"TURNLEDGER_RATE_IDENTITY", fmt.Sprint(c.RateIdentity)},
	}
}
