package config

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/turnledger/turnledger/services/ratelimit"
)

// prompts are the settings of prompts and of chat (docs/contract.md#environment).
type prompts struct {
	SystemPrompt string `help:"System prompt of contexts that bring none." env:"TURNLEDGER_SYSTEM_PROMPT" show:"given"`

	PromptKey string `help:"Key of the digests of prompts that answers keep, by which turnledger whatif knows a prompt again: 32 random characters or more, the same in every process; unset: one that is drawn once into prompt.key in the data directory, and with an outside NATS none: no digests." env:"TURNLEDGER_PROMPT_KEY" show:"given"`

	ModelURL       string        `name:"model-url" help:"Endpoint of the chat model, up to its version; unset: dev answers with an echo." env:"TURNLEDGER_MODEL_URL" show:"url"`
	ModelName      string        `name:"model-name" help:"Name of the model; its encoding counts max_tokens." env:"TURNLEDGER_MODEL_NAME"`
	ModelKey       string        `name:"model-key" help:"Key of the endpoint." env:"TURNLEDGER_MODEL_KEY" show:"given"`
	ModelAPI       string        `name:"model-api" help:"What the endpoint speaks: chat (OpenAI's chat completions, also openai), anthropic, or responses (OpenAI's Responses API); auto is chat or anthropic, by the address." default:"auto" env:"TURNLEDGER_MODEL_API"`
	ModelSilence   time.Duration `name:"model-silence" help:"How long the model may say nothing before its answer is given up; models that think, or are loaded first, need longer." default:"30s" env:"TURNLEDGER_MODEL_SILENCE"`
	ModelContext   int           `name:"model-context" help:"Tokens that the model takes, with those of its answer: threads and OpenAI's routes leave out what is longer, or refuse it; 0: they leave that to the endpoint." default:"0" env:"TURNLEDGER_MODEL_CONTEXT"`
	ModelMaxTokens int64         `name:"model-max-tokens" help:"Tokens that an answer may have whose caller names no bound; 0 leaves it to the model (Anthropic's API, which wants to be told: 8192)." default:"0" env:"TURNLEDGER_MODEL_MAX_TOKENS"`
	OnPending      string        `name:"on-pending" help:"What happens to a message while another is being answered: reject, enqueue or interrupt." default:"enqueue" env:"TURNLEDGER_ON_PENDING"`
	OnDisconnect   string        `name:"on-disconnect" help:"What happens to an answer once nobody is connected who asked for it or watches it: stop or continue; unset: a chat completion stops, and others continue." env:"TURNLEDGER_ON_DISCONNECT"`
	ChatHistory    string        `name:"chat-history" help:"What a chat completion in a session is shown that names nothing: auto, server, client or off." default:"auto" env:"TURNLEDGER_CHAT_HISTORY"`
	SessionHeaders []string      `name:"session-headers" help:"Headers of other products that name a chat completion's session, in their order, behind X-Turnledger-Session and the body." env:"TURNLEDGER_SESSION_HEADERS"`

	RewriterURL     string        `name:"rewriter-url" help:"OpenAI-compatible endpoint of the query rewriter; unset: rewrite falls back to the message." env:"TURNLEDGER_REWRITER_URL" show:"url"`
	RewriterName    string        `name:"rewriter-name" help:"Name of its model; that of the chat model by default." env:"TURNLEDGER_REWRITER_NAME"`
	RewriterKey     string        `name:"rewriter-key" help:"Key of the endpoint." env:"TURNLEDGER_REWRITER_KEY" show:"given"`
	RewriterTimeout time.Duration `name:"rewriter-timeout" help:"How long a rewrite may take." default:"5s" env:"TURNLEDGER_REWRITER_TIMEOUT"`

	SummaryURL   string `name:"summary-url" help:"OpenAI-compatible endpoint of the model that summarises long sessions; unset: none does." env:"TURNLEDGER_SUMMARY_URL" show:"url"`
	SummaryName  string `name:"summary-name" help:"Name of its model; that of the chat model by default." env:"TURNLEDGER_SUMMARY_NAME"`
	SummaryKey   string `name:"summary-key" help:"Key of the endpoint." env:"TURNLEDGER_SUMMARY_KEY" show:"given"`
	SummaryAfter int    `name:"summary-after" help:"How many finalized turns that no summary covers ask for one; the last ten are never covered, so it is at least 11." default:"20" env:"TURNLEDGER_SUMMARY_AFTER"`

	MemoryURL    string        `name:"memory-url" help:"Supermemory's address for long-term memory; unset: the audit tables, and the index of meanings where there is one." env:"TURNLEDGER_MEMORY_URL" show:"url"`
	MemoryKey    string        `name:"memory-key" help:"Key of it." env:"TURNLEDGER_MEMORY_KEY" show:"given"`
	MemoryAPI    string        `name:"memory-api" help:"Version of Supermemory's API: v5 or v4." default:"v5" env:"TURNLEDGER_MEMORY_API"`
	MemoryBudget time.Duration `name:"memory-budget" help:"How long a prompt waits for the memory." default:"300ms" env:"TURNLEDGER_MEMORY_BUDGET"`

	RateSession  ratelimit.Rate `name:"rate-session" help:"Turns, and contexts, that a session may ask for, such as 60/m; off: no limit." default:"off" env:"TURNLEDGER_RATE_SESSION"`
	RateIdentity ratelimit.Rate `name:"rate-identity" help:"The same of an identity over all its sessions." default:"off" env:"TURNLEDGER_RATE_IDENTITY"`
}

// RewriterModel returns the name of the rewriter's model: its own, or the chat's.
func (c prompts) RewriterModel() string { return cmp.Or(c.RewriterName, c.ModelName) }

// SummaryModel returns the name of the model that summarises: its own, or the chat's.
func (c prompts) SummaryModel() string { return cmp.Or(c.SummaryName, c.ModelName) }

func (c prompts) validate(no *complaints) {
	no.unless(slices.Contains([]string{"reject", "enqueue", "interrupt"}, c.OnPending),
		"ON_PENDING", "must be reject, enqueue or interrupt")
	no.unless(slices.Contains([]string{"", "stop", "continue"}, c.OnDisconnect),
		"ON_DISCONNECT", "must be stop or continue")
	no.unless(slices.Contains([]string{"auto", "server", "client", "off"}, c.ChatHistory),
		"CHAT_HISTORY", "must be auto, server, client or off")
	for _, a := range [][2]string{
		{"MODEL_URL", c.ModelURL}, {"REWRITER_URL", c.RewriterURL}, {"MEMORY_URL", c.MemoryURL},
		{"SUMMARY_URL", c.SummaryURL},
	} {
		u, err := url.Parse(a[1])
		no.when(a[1] != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"),
			a[0], "must be a URL such as https://api.openai.com/v1")
	}
	no.unless(c.PromptKey == "" || len(c.PromptKey) >= 32, "PROMPT_KEY", "must be 32 characters or more")
	no.when(c.ModelURL != "" && c.ModelName == "", "MODEL_NAME", "is needed with TURNLEDGER_MODEL_URL")
	no.when(c.RewriterURL != "" && c.RewriterModel() == "", "REWRITER_NAME", "is needed with TURNLEDGER_REWRITER_URL")
	no.when(c.SummaryURL != "" && c.SummaryModel() == "", "SUMMARY_NAME", "is needed with TURNLEDGER_SUMMARY_URL")
	no.unless(within(c.SummaryAfter, 11, 100_000), "SUMMARY_AFTER", "must be at least 11: the last ten are not covered")
	no.unless(slices.Contains([]string{"auto", "chat", "openai", "anthropic", "responses"}, c.ModelAPI),
		"MODEL_API", "must be auto, chat, anthropic or responses")
	no.unless(slices.Contains([]string{"v5", "v4"}, c.MemoryAPI), "MEMORY_API", "must be v5 or v4")
	no.when(c.ModelContext < 0, "MODEL_CONTEXT", "must not be negative")
	no.unless(within(c.ModelSilence, 1, 2*time.Minute),
		"MODEL_SILENCE", "must be above 0 and at most 2m, the time of an answer")
	no.unless(within(c.MemoryBudget, 1, 10*time.Second), "MEMORY_BUDGET", "must be above 0 and at most 10s")
	no.unless(within(c.RewriterTimeout, 1, time.Minute), "REWRITER_TIMEOUT", "must be above 0 and at most 1m")
}
