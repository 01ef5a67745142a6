package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi"
	"github.com/turnledger/turnledger/services/serving"
)

// Chat's ports meet the services here.

type chatTurns struct{ *history.Service }

func (c chatTurns) StartTurn(ctx context.Context, s conversation.Start) (chat.Turn, error) {
	t, err := c.Service.StartTurn(ctx, s)
	return chatTurn(t), err
}

func (c chatTurns) FinalizeTurn(ctx context.Context, f conversation.Finalize) (chat.Turn, error) {
	t, err := c.Service.FinalizeTurn(ctx, f)
	return chatTurn(t), err
}

func chatTurn(t history.Turn) chat.Turn {
	return chat.Turn{Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID, Position: t.Position, Duplicate: t.Duplicate}
}

type chatSessions struct{ reader *contextbuilder.Reader }

// Session gives a state that holds all pending turns: of a long session, all others
// may be left out.
func (c chatSessions) Session(ctx context.Context, id string, known uint64) (*conversation.State, error) {
	ask := contextbuilder.Ask{SessionID: id, Shown: contextbuilder.DefaultMessages, Known: known}
	r, err := c.reader.Read(ctx, ask)
	if err != nil || r.State.Whole {
		return r.State, err
	}
	held := 0
	for _, t := range r.State.Turns {
		if t.Status == conversation.Pending {
			held++
		}
	}
	if held < r.State.Pending {
		ask.Shown = -1
		r, err = c.reader.Read(ctx, ask)
	}
	return r.State, err
}

type chatContexts struct {
	builder serving.Builder
	format  string
}

func (c chatContexts) request(r chat.PromptRequest) contextbuilder.Request {
	ask := contextbuilder.Request{
		SessionID: r.SessionID, Message: r.Message, TurnID: r.TurnID, Known: r.Known, SystemPrompt: r.SystemPrompt,
		MaxMessages: r.MaxMessages, MaxTokens: r.MaxTokens, IdleTimeout: r.IdleTimeout, Language: contextbuilder.Language(r.Language),
		Memory: r.Memory, Rewrite: r.Rewrite, IncludePending: true, Format: contextbuilder.Format(c.format),
	}
	if r.Fresh {
		ask.History = []json.RawMessage{}
	}
	return ask
}

func (c chatContexts) Valid(r chat.PromptRequest) error { return c.request(r).Valid() }

func (c chatContexts) Build(ctx context.Context, r chat.PromptRequest) (chat.Prompt, error) {
	res, err := c.builder.Build(ctx, c.request(r))
	if err != nil {
		return chat.Prompt{}, err
	}
	out := chat.Prompt{
		System: res.System, HistoryTurns: res.HistoryTurns, HistoryMessages: res.HistoryMessages, DroppedTurns: res.DroppedTurns,
		Source: string(res.Source), RewrittenQuery: res.RewrittenQuery,
	}
	for _, m := range res.Messages {
		out.Messages = append(out.Messages, m.JSON())
	}
	return out, nil
}

type chats struct{ *chat.Service }

func (c chats) Send(ctx context.Context, m httpapi.ChatMessage, to httpapi.ChatListener) (httpapi.ChatReply, error) {
	r, err := c.Service.Send(ctx, chat.Message{
		ThreadID: m.ThreadID, UserID: m.UserID, RequestID: m.RequestID, Content: m.Content, Policy: chat.Policy(m.OnPending),
		Options: chat.Options{
			SystemPrompt: m.SystemPrompt, MaxMessages: m.MaxMessages, MaxTokens: m.MaxTokens,
			IdleTimeout: m.IdleTimeout, Language: m.Language, Memory: m.Memory, Rewrite: m.Rewrite,
		},
	}, to)
	if errors.Is(err, chat.ErrModel) {
		err = fmt.Errorf("%w: %w", httpapi.ErrModelFailed, err)
	}
	return httpapi.ChatReply{
		ThreadID: r.ThreadID, Content: r.Content, Model: r.Model, HistoryTurns: r.HistoryTurns, RewrittenQuery: r.RewrittenQuery,
		HistoryMessages: r.HistoryMessages, DroppedTurns: r.DroppedTurns, Source: r.Source,
		Again: r.Again, FinishReason: string(r.Finish),
		Turn: httpapi.Turn{Turn: r.Turn.Turn, SessionID: r.Turn.SessionID, IdentityID: r.Turn.IdentityID, Position: r.Turn.Position, Duplicate: r.Turn.Duplicate},
	}, serving.Reached(err)
}
