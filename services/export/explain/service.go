package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

// Service explains turns of the log of this process.
type Service struct {
	Events   services.EventReader
	Contexts services.ContextBuilder
}

var _ services.Explainer = Service{}

// Explain implements services.Explainer.
func (s Service) Explain(ctx context.Context, ask services.ExplainAsk) (out services.Explanation, err error) {
	x, err := New(ask.SessionID, ask.TurnID, func(session string) iter.Seq2[[]byte, error] {
		return s.lines(ctx, session)
	}, WithoutTexts)
	if errors.Is(err, ErrNoTurn) {
		return out, services.ErrNotExplained
	}
	if err != nil {
		return out, err
	}
	at, err := events.ParsePosition(x.AsOf)
	if err != nil {
		return out, err
	}
	prompt, err := s.Contexts.Build(ctx, services.ContextRequest{
		SessionID: x.SessionID, Message: cmp.Or(x.Question, "(no text)"), TurnID: x.Root, MaxMessages: ask.MaxMessages,
		IncludePending: ask.IncludePending, Language: cmp.Or(ask.Language, services.Neutral), Format: services.OpenAI,
		AsOf: &services.AsOf{Position: &at},
	})
	if err != nil {
		return out, err
	}
	seen := Context{
		HistoryMessages: prompt.HistoryMessages, HistoryTurns: prompt.HistoryTurns, DroppedTurns: prompt.DroppedTurns,
	}
	for _, m := range prompt.Messages {
		seen.Messages = append(seen.Messages, json.RawMessage(m.JSON()))
	}
	x.Saw(seen, ask.IncludePending)
	return services.Explanation{
		SessionID: x.SessionID, TurnID: ask.TurnID, Inherited: x.Inherited, AsOf: x.AsOf, Prompt: prompt,
		Events: x.Events, Turns: x.Turns,
	}, nil
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
