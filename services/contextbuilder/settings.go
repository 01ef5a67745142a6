package contextbuilder

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// Settings returns what a prompt was built with, as far as Request needs it to build the same again.
func (b *Builder) Settings(req services.ContextRequest, built *services.Context) services.PromptSettings {
	return services.PromptSettings{
		AsOf: built.Position, SystemPrompt: cmp.Or(req.SystemPrompt, b.cfg.SystemPrompt),
		MaxMessages: min(req.MaxMessages, services.MostMessages), MaxTokens: req.MaxTokens, MaxPrompt: req.MaxPrompt,
		Truncate: req.Truncate, IdleTimeout: b.idle(req), Blocks: b.blocks(req), Language: req.Language,
		IncludePending: req.IncludePending, Through: req.Through, Memory: req.Memory, Rewrite: req.Rewrite,
		Summary: req.Summary, Format: req.Format,
	}
}

// Request returns the request for a prompt of a turn as settings say, but for what a memory and a rewriter added, which
// nobody knows any more. Message is left out with Through.
func Request(s services.PromptSettings, sessionID string, turn uuid.UUID, message string) services.ContextRequest {
	req := services.ContextRequest{
		SessionID: sessionID, TurnID: turn, Message: message, Through: s.Through, SystemPrompt: s.SystemPrompt,
		MaxMessages: s.MaxMessages, MaxTokens: s.MaxTokens, MaxPrompt: s.MaxPrompt, Truncate: s.Truncate,
		IdleTimeout: &s.IdleTimeout, Blocks: &s.Blocks, Language: s.Language, IncludePending: s.IncludePending,
		Summary: s.Summary, Format: s.Format,
	}
	if s.Through {
		req.Message = ""
	}
	if !s.Truncate {
		req.MaxPrompt = 0 // it fitted
	}
	return req
}

// On returns a builder that reads from elsewhere, at another time, and takes the system prompt from requests alone.
func (b *Builder) On(r Sessions, now func() time.Time) *Builder {
	other := &Builder{reader: r, cfg: b.cfg}
	other.cfg.Now, other.cfg.SystemPrompt = now, ""
	return other
}

// Tokens counts those of a prompt.
func (b *Builder) Tokens(system string, list []json.RawMessage) int {
	all := message.ParseAll(list)
	if system != "" {
		all = append(all, message.New(message.System, system))
	}
	return tokensOf(all, b.cfg.Tokens.Count)
}

func (b *Builder) blocks(req services.ContextRequest) bool {
	if req.Blocks != nil {
		return *req.Blocks
	}
	return b.cfg.Blocks
}
