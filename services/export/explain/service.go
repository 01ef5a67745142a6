package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

// Service explains turns of the log of this process.
type Service struct {
	Events   services.EventReader
	Sessions services.SessionReader
	Contexts services.ContextBuilder
}

var _ services.Explainer = Service{}

// Explain implements services.Explainer.
func (s Service) Explain(ctx context.Context, ask services.ExplainAsk) (out services.Explanation, err error) {
	var x *Explanation
	log := func(session string) iter.Seq2[[]byte, error] { return s.lines(ctx, session) }
	if ask.TurnID != uuid.Nil {
		x, err = New(ask.SessionID, ask.TurnID, log, WithoutTexts)
	} else {
		x, err = At(ask.SessionID, pick(ask), log, WithoutTexts)
	}
	if errors.Is(err, ErrNoTurn) {
		return out, services.ErrNotExplained
	}
	if err != nil {
		return out, err
	}
	// The events of a session don't say that its identity is erased.
	now, err := s.Sessions.Read(ctx, services.Ask{SessionID: ask.SessionID})
	if err != nil {
		return out, err
	}
	if now.State.Erased != 0 {
		return out, services.ErrNotExplained
	}
	at, err := events.ParsePosition(x.AsOf)
	if err != nil {
		return out, err
	}
	message := cmp.Or(x.Question, "(no text)")
	if x.Root == uuid.Nil {
		message = "(the next question)"
	}
	prompt, err := s.Contexts.Build(ctx, services.ContextRequest{
		SessionID: x.SessionID, Message: message, TurnID: x.Root, MaxMessages: ask.MaxMessages,
		MaxTokens: ask.MaxTokens, IncludePending: ask.IncludePending, Summary: ask.Summary,
		Language: cmp.Or(ask.Language, services.Neutral), Format: services.OpenAI,
		AsOf: &services.AsOf{Position: &at},
	})
	if err != nil {
		return out, err
	}
	seen := Context{
		HistoryMessages: prompt.HistoryMessages, HistoryTurns: prompt.HistoryTurns, DroppedTurns: prompt.DroppedTurns,
	}
	for _, id := range prompt.TurnIDs {
		seen.TurnIDs = append(seen.TurnIDs, id.String())
	}
	if prompt.Summary != nil {
		seen.SummarisedThrough = prompt.Summary.ThroughTurnID.String()
	}
	for _, m := range prompt.Messages {
		seen.Messages = append(seen.Messages, json.RawMessage(m.JSON()))
	}
	x.Saw(seen, ask.IncludePending)
	out = x.Explanation
	out.Prompt = prompt
	return out, nil
}

// pick returns how the event that is asked for is found among those of its session.
func pick(ask services.ExplainAsk) func([]events.Recorded) int {
	return func(all []events.Recorded) int {
		switch {
		case ask.At != events.Position{}:
			return slices.IndexFunc(all, func(r events.Recorded) bool { return r.Position == ask.At })
		case ask.Nth != 0:
			return ask.Nth - 1
		default:
			return len(all) - 1
		}
	}
}

// lines returns the events of a session.
func (s Service) lines(ctx context.Context, session string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		stream, err := s.Events.OpenEvents(ctx, services.EventQuery{SessionID: session})
		if err != nil {
			yield(nil, err)
			return
		}
		defer stream.Close()
		for {
			batch, err := stream.Next(ctx)
			for _, e := range batch {
				if !yield(e.JSON, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
