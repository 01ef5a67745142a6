package contextbuilder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// besides is how many messages a prompt has besides its history.
const besides = 4

// assemble puts the prompt together: system prompt, memory, summary, history, message.
// It may change the history's slice. It fails with services.ErrPromptTooLong.
func (b *Builder) assemble(ctx context.Context, req services.ContextRequest, p *prompt) error {
	if req.Memory {
		p.MemorySnippet = b.remember(ctx, req, p)
	}
	current := req.Message
	if req.Rewrite {
		current = b.rewrite(ctx, req, p)
	}
	before := systemMessage(req)
	if p.MemorySnippet != "" {
		before = append(before, message.New(message.System, "Long-term memory:\n"+p.MemorySnippet))
	}
	if p.summary != nil {
		before = append(before, summaryMessage(p.summary, req.Language))
	}
	messages := append(slices.Insert(p.history, 0, before...), appended(req)...)
	if req.Through {
		p.Tokens = tokensOf(messages, b.cfg.Tokens.Count)
	} else {
		messages = append(messages, message.New(message.User, current))
	}
	if req.MaxPrompt > 0 && p.Tokens > req.MaxPrompt {
		return services.ErrPromptTooLong
	}
	if req.Format == services.Anthropic {
		p.System, messages = message.Anthropic(messages)
	}
	p.Messages = make([]services.Message, len(messages))
	for i := range messages {
		p.Messages[i] = &messages[i]
	}
	return nil
}

// remember returns the memory's snippet. The memory never delays a prompt beyond its budget, and never makes it fail:
// the warnings say what is missing.
func (b *Builder) remember(ctx context.Context, req services.ContextRequest, p *prompt) string {
	switch {
	case b.cfg.Memory == nil:
		p.Warnings = append(p.Warnings, "memory: none is configured")
		return ""
	case req.AsOf != nil:
		p.Warnings = append(p.Warnings, "memory: what it knew then is not known; as_of goes without")
		return ""
	}
	if req.History != nil {
		// The session was not read yet.
		reading, now, err := b.read(ctx, req, services.Ask{Shown: 1})
		if err != nil {
			p.Warnings = append(p.Warnings, "memory: "+whyNot(err))
			return ""
		}
		p.of(reading.State, now)
	}
	if p.identity != "" && req.IdentityID != "" && p.identity != req.IdentityID {
		p.Warnings = append(p.Warnings, "memory: the session belongs to another identity than identity_id")
		return ""
	}
	q := services.MemoryQuery{
		SessionID: req.SessionID, IdentityID: cmp.Or(p.identity, req.IdentityID), Message: req.Message,
		Shown: p.TurnIDs,
	}
	if q.IdentityID == "" {
		q.After = p.memoryAfter
	}
	var snippet services.MemorySnippet
	err := services.Measure(ctx, "memory", func(ctx context.Context) (err error) {
		snippet, err = b.cfg.Memory.Snippet(ctx, q)
		return err
	})
	if err != nil {
		p.Warnings = append(p.Warnings, "memory: "+whyNot(err))
		return ""
	}
	switch {
	case snippet.OtherModel:
		p.Warnings = append(p.Warnings, "memory: by words only, since "+projections.ErrOtherModel.Error())
	case snippet.ByWords:
		p.Warnings = append(p.Warnings, "memory: by words only, since the index of meanings does not answer")
	}
	return snippet.Text
}

// whyNot returns a reason for an error. The reason never holds a text of a turn.
func whyNot(err error) string {
	switch {
	case errors.Is(err, services.ErrWithheld):
		return services.ErrWithheld.Error()
	case errors.Is(err, errNoRewriter):
		return errNoRewriter.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	default:
		return "no answer"
	}
}

var errNoRewriter = errors.New("none is configured")

// rewrite returns the content of the last message, which always contains the original message.
func (b *Builder) rewrite(ctx context.Context, req services.ContextRequest, p *prompt) string {
	rewritten, err := "", errNoRewriter
	if b.cfg.Rewriter != nil {
		err = services.Measure(ctx, "rewriter", func(ctx context.Context) (err error) {
			rewritten, err = b.cfg.Rewriter.Rewrite(ctx, req.Message, p.history, p.MemorySnippet)
			return err
		})
	}
	if err != nil || rewritten == "" {
		p.RewriteFallback = true
		p.Warnings = append(p.Warnings, "rewrite: "+whyNot(err))
		return req.Message
	}
	p.RewrittenQuery = rewritten
	return fmt.Sprintf("Original user message:\n%s\n\n---\n\nContextualized query:\n%s", req.Message, rewritten)
}
