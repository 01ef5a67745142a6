package respond

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// work is the answer to a step.
type work struct {
	*Service

	step step
	ask  Ask
	read bool
	// input counts the tokens of the prompt, for a model that does not.
	input int64
}

var _ services.Work = (*work)(nil)

// Start implements services.Work. The step stands in the log already; after the first call its turn is looked up,
// without its texts.
func (w *work) Start(ctx context.Context) (services.Turn, error) {
	if !w.read && !w.step.duplicate {
		w.read = true
		t := conversation.Turn{ID: w.step.TurnID, Place: w.step.place, Started: w.step.Position.Seq}
		if w.step.extension != "" {
			t.Status = conversation.Finalized
		}
		return services.Turn{Turn: t, SessionID: w.step.session}, nil
	}
	found, err := w.cfg.Lookup.FindTurn(ctx, w.step.session, w.step.TurnID)
	if isGone(err) {
		err = ErrResponseNotFound
	}
	if err != nil {
		return services.Turn{}, err
	}
	return services.Turn{Turn: *found.Turn, SessionID: w.step.session, Duplicate: true}, nil
}

// Answered implements services.Work.
func (w *work) Answered(t *conversation.Turn) bool {
	if w.step.extension == "" {
		return t.Status != conversation.Pending
	}
	_, has := w.step.answerAt(t)
	return has || t.Status != conversation.Finalized
}

// Prompt implements services.Work.
func (w *work) Prompt(ctx context.Context, turn uuid.UUID, known uint64) (services.Prompt, error) {
	req := w.contextRequest(w.ask)
	req.SessionID, req.TurnID, req.KnownSeq, req.Sent = w.step.session, turn, known, w.ask.Sent
	return w.prompt(ctx, req, w.ask, &w.input)
}

// contextRequest returns the request for a prompt: everything, unless the request asks for less.
func (s *Service) contextRequest(a Ask) services.ContextRequest {
	off := time.Duration(0)
	req := services.ContextRequest{
		SystemPrompt: a.Instructions, MaxMessages: math.MaxInt, IdleTimeout: &off, IncludePending: true, Through: true,
		Format: s.cfg.Model.Format(), Truncate: a.Truncate,
	}
	if s.cfg.Context > 0 {
		answer := min(a.Options.MaxTokens, int64(s.cfg.Context))
		req.MaxPrompt = max(1, s.cfg.Context-int(answer)-s.toolTokens(a)) // 0 would be no bound
	}
	return req
}

// toolTokens counts the tokens of the tools that a request offers.
func (s *Service) toolTokens(a Ask) (n int) {
	for _, t := range a.Options.Tools {
		n += s.cfg.Count(string(t.Raw))
	}
	return n
}

// built builds a prompt. It fails with ErrTooLong.
func (s *Service) built(ctx context.Context, req services.ContextRequest) (services.Context, error) {
	c, err := s.cfg.Contexts.Build(ctx, req)
	if errors.Is(err, services.ErrPromptTooLong) {
		err = fmt.Errorf("%w: %w", ErrTooLong, err)
	}
	return c, err
}

// prompt builds a prompt, and counts its tokens.
func (s *Service) prompt(
	ctx context.Context, req services.ContextRequest, a Ask, tokens *int64,
) (services.Prompt, error) {
	built, err := s.built(ctx, req)
	if err != nil {
		return services.Prompt{}, err
	}
	p := services.Prompt{System: built.System, ModelOptions: a.Options}
	*tokens = int64(built.Tokens + s.toolTokens(a))
	for _, m := range built.Messages {
		p.Messages = append(p.Messages, m.JSON())
	}
	return p, nil
}

// Empty implements services.Work. A model that has nothing to add to the output of a tool has answered, and so has one
// that was cut short.
func (w *work) Empty(answer services.ModelAnswer) bool {
	return len(answer.Parts) == 0 && !answer.Cut() && !slices.ContainsFunc(w.ask.Input, message.Item.IsOutput)
}

// usage returns what a model used, counted if it does not tell.
func (s *Service) usage(answer services.ModelAnswer, input int64) conversation.Usage {
	if answer.Usage != nil {
		return *answer.Usage
	}
	u := conversation.Usage{Input: input}
	for _, p := range answer.Parts {
		u.Output += int64(s.cfg.Count(p.Text) + s.cfg.Count(p.Name))
	}
	return u
}

// Record implements services.Work.
func (w *work) Record(
	ctx context.Context, turn uuid.UUID, answer services.ModelAnswer,
) (services.Turn, error) {
	used := w.usage(answer, w.input)
	settings := encode(told{
		Model: w.cfg.Model.Name(), AnsweredBy: answer.Model, Usage: used, Finish: answer.Finish,
	})
	finish := ""
	if answer.Finish != services.FinishStop {
		finish = string(answer.Finish)
	}
	var list []json.RawMessage
	for _, i := range output(answer, w.step.mint(w.cfg.IDs)) {
		list = append(list, i.Message())
	}
	if w.step.extension == "" {
		return w.cfg.Turns.FinalizeTurn(ctx, conversation.Finalize{
			SessionID: w.step.session, TurnID: turn, FinishReason: finish, Usage: answer.Usage, Settings: settings,
			Answer: events.Answer{AnswerNeutral: answer.Text(), AnswerMessages: encode(list)},
		})
	}
	whole, err := w.wholeUsage(ctx, answer.Usage)
	if err != nil {
		return services.Turn{}, err
	}
	return w.cfg.Turns.ExtendTurn(ctx, conversation.Extend{
		SessionID: w.step.session, TurnID: turn, ExtensionID: w.step.extension, FinishReason: finish, Usage: whole,
		Settings: settings, Extension: events.Extension{
			Half: events.HalfAnswer, AnswerNeutral: answer.Text(), Messages: encode(list),
		},
	})
}

// wholeUsage adds what the turn has used before, since the metadata of a turn speaks of all its answers.
func (w *work) wholeUsage(ctx context.Context, used *conversation.Usage) (*conversation.Usage, error) {
	if used == nil {
		return nil, nil //nolint:nilnil // the model did not tell
	}
	ask := services.Ask{SessionID: w.step.session, Shown: 1, Own: true}
	reading, err := w.cfg.Sessions.Read(ctx, ask)
	if err == nil && reading.State.Turn(w.step.TurnID) == nil { // it is not the newest
		ask.AllTurns = true
		reading, err = w.cfg.Sessions.Read(ctx, ask)
	}
	if err != nil {
		return nil, err
	}
	whole := *used
	if t := reading.State.Turn(w.step.TurnID); t != nil {
		if before := conversation.UsageOf(t.Metadata()); before != nil {
			whole = whole.Plus(*before)
		}
	}
	return &whole, nil
}
