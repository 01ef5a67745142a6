package answer

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
)

// What the log keeps of a prompt beside its answer says how the prompt was built, so that it can be built again. Its
// digest tells whether it came out the same.

// kept returns what the log keeps of a prompt.
func (s *Service) kept(
	req services.ContextRequest, built *services.Context, p services.Prompt,
) *services.PromptSettings {
	out := s.cfg.Contexts.Settings(req, built)
	out.Digest = align.Prompt(s.cfg.PromptKey, p.System, p.Messages)
	return &out
}

// keptOf is kept for the prompt of a step, whose instructions stand with its input. The digest is that of the prompt as
// the log can show it: with the texts in the place of images that it does not keep.
func (s *Service) keptOf(
	ctx context.Context, a ask, req services.ContextRequest, built services.Context,
) *services.PromptSettings {
	if a.showsMore() {
		req.Sent = nil
		var err error
		if built, err = s.cfg.Contexts.Build(ctx, req); err != nil {
			return nil // the answer counts
		}
	}
	format := s.cfg.Model.Format()
	out := s.kept(req, &built, a.withSent(promptOf(&built, a.Options), format))
	var said string
	if a.Instructions != "" && json.Unmarshal(a.Settings["instructions"], &said) == nil && said == a.Instructions {
		out.SystemPrompt = ""
	}
	if c := a.Completion; c != nil && a.Instructions != "" && format == services.OpenAI &&
		(len(c.System) != 1 || !sameJSON(c.System[0], message.New(message.System, a.Instructions).JSON())) {
		out.System = c.System
	}
	return out
}

// keptSent is kept for a prompt that the client has built itself.
func (s *Service) keptSent(a ask, at events.Position) *services.PromptSettings {
	said := align.Said(a.Completion.Sent)
	out := s.cfg.Contexts.Settings(s.contextRequest(a), &services.Context{Position: at})
	out.Digest, out.SystemPrompt = align.Seal(s.cfg.PromptKey, said), ""
	out.Format, out.Sent = services.OpenAI, len(said)
	return &out
}

// showsMore reports whether a model gets something else than what the log keeps of the messages.
func (a ask) showsMore() bool {
	for stored, sent := range a.Sent {
		if !sameJSON(json.RawMessage(stored), sent) {
			return true
		}
	}
	return false
}

// sameJSON reports whether two values are the same, in whatever order and spacing.
func sameJSON(a, b json.RawMessage) bool {
	x, y := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	return x.Canonicalize() == nil && y.Canonicalize() == nil && bytes.Equal(x, y)
}
