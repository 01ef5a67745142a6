// Package serving is where the HTTP API meets the services that answer it: the transport
// knows none of them, and they don't know it.
package serving

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi"
)

// Writer takes the transport's writes.
type Writer struct{ *history.Service }

var (
	_ httpapi.TurnWriter    = Writer{}
	_ httpapi.SessionWriter = Writer{}
	_ httpapi.ErasureWriter = Writer{}
)

// StartTurn implements httpapi.TurnWriter.
func (w Writer) StartTurn(ctx context.Context, c conversation.Start) (httpapi.Turn, error) {
	t, err := w.Service.StartTurn(ctx, c)
	return httpapi.Turn(t), err
}

// FinalizeTurn implements httpapi.TurnWriter.
func (w Writer) FinalizeTurn(ctx context.Context, c conversation.Finalize) (httpapi.Turn, error) {
	t, err := w.Service.FinalizeTurn(ctx, c)
	return httpapi.Turn(t), err
}

// RedactTurn implements httpapi.TurnWriter.
func (w Writer) RedactTurn(ctx context.Context, sessionID string, c conversation.Redact) (httpapi.Turn, error) {
	t, err := w.Service.RedactTurn(ctx, sessionID, c)
	return httpapi.Turn(t), err
}

// CorrectTurn implements httpapi.TurnWriter.
func (w Writer) CorrectTurn(ctx context.Context, c conversation.Correct) (httpapi.Turn, error) {
	t, err := w.Service.CorrectTurn(ctx, c)
	return httpapi.Turn(t), err
}

// LinkSession implements httpapi.SessionWriter.
func (w Writer) LinkSession(ctx context.Context, sessionID, identityID, sourceHash string) (httpapi.Session, error) {
	s, err := w.Service.LinkSession(ctx, sessionID, identityID, sourceHash)
	return httpapi.Session(s), err
}

// ResetSession implements httpapi.SessionWriter.
func (w Writer) ResetSession(ctx context.Context, sessionID, reason string) (httpapi.Session, error) {
	s, err := w.Service.ResetSession(ctx, sessionID, reason)
	return httpapi.Session(s), err
}

// EraseSession implements httpapi.ErasureWriter.
func (w Writer) EraseSession(ctx context.Context, sessionID, reason, by string) (string, error) {
	return w.Service.EraseSession(ctx, sessionID, history.Erasure{Reason: reason, By: by})
}

// EraseIdentity implements httpapi.ErasureWriter.
func (w Writer) EraseIdentity(ctx context.Context, identityID, reason, by string) (string, error) {
	return w.Service.EraseIdentity(ctx, identityID, history.Erasure{Reason: reason, By: by})
}

// Sessions answers the transport's reads.
type Sessions struct{ Reader *contextbuilder.Reader }

// Read implements httpapi.Sessions.
func (s Sessions) Read(ctx context.Context, ask httpapi.Ask) (httpapi.Reading, error) {
	r, err := s.Reader.Read(ctx, contextbuilder.Ask{SessionID: ask.SessionID, Shown: ask.Shown, MinPosition: ask.MinPosition})
	return httpapi.Reading{State: r.State, Position: r.Position, Source: string(r.Source)}, Reached(err)
}

// Reached says in the transport's terms that a position was not reached.
func Reached(err error) error {
	if errors.Is(err, contextbuilder.ErrPositionNotReached) {
		return fmt.Errorf("%w: %w", httpapi.ErrPositionNotReached, err)
	}
	return err
}

// Builder builds prompts; *contextbuilder.Builder is one.
type Builder interface {
	Build(ctx context.Context, req contextbuilder.Request) (contextbuilder.Result, error)
}

// Contexts builds the transport's prompts.
type Contexts struct{ Builder Builder }

// Build implements httpapi.Contexts.
func (c Contexts) Build(ctx context.Context, req httpapi.ContextRequest) (httpapi.Context, error) {
	ask := contextbuilder.Request{
		SessionID: req.SessionID, Message: req.Message, TurnID: req.TurnID, SystemPrompt: req.SystemPrompt,
		MaxMessages: req.MaxMessages, MaxTokens: req.MaxTokens, IdleTimeout: req.IdleTimeout,
		Language: contextbuilder.Language(req.Language), IncludePending: req.IncludePending, Memory: req.Memory, Rewrite: req.Rewrite,
		IdentityID: req.IdentityID, History: req.History, Format: contextbuilder.Format(req.Format), MinPosition: req.MinPosition,
	}
	if req.AsOf != nil {
		ask.AsOf = &contextbuilder.AsOf{Position: req.AsOf.Position, Time: req.AsOf.Time}
	}
	r, err := c.Builder.Build(ctx, ask)
	if err != nil {
		return httpapi.Context{}, Reached(err)
	}
	out := httpapi.Context{
		System: r.System, SessionFound: r.SessionFound, HistoryMessages: r.HistoryMessages, HistoryTurns: r.HistoryTurns,
		DroppedTurns: r.DroppedTurns, MemorySnippet: r.MemorySnippet, RewrittenQuery: r.RewrittenQuery, RewriteFallback: r.RewriteFallback,
		Warnings: r.Warnings, Position: r.Position, Source: string(r.Source), Messages: make([]httpapi.Message, len(r.Messages)),
	}
	for i := range r.Messages {
		out.Messages[i] = &r.Messages[i]
	}
	return out, nil
}
