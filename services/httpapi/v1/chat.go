package v1

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// threadIn is a chatIn whose thread is in the path.
type threadIn struct {
	ThreadID       string       `path:"thread_id" doc:"The session; new makes one"`
	IdempotencyKey string       `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	OnDisconnect   onDisconnect `header:"X-Turnledger-On-Disconnect" doc:"Whether the answer goes on once its client has gone: stop or continue"`
	Body           chatBody
}

type chatIn struct {
	ThreadID       string       `header:"X-Thread-Id" doc:"The session, where the body has none; without either, or new, one is made"`
	IdempotencyKey string       `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	OnDisconnect   onDisconnect `header:"X-Turnledger-On-Disconnect" doc:"Whether the answer goes on once its client has gone: stop or continue"`
	Body           chatBody
}

// onDisconnect says what happens to an answer once its client has gone.
type onDisconnect services.OnDisconnect

// UnmarshalText reads stop or continue.
func (d *onDisconnect) UnmarshalText(b []byte) error {
	if *d = onDisconnect(b); !services.OnDisconnect(*d).Valid() {
		return invalid("", "must be stop or continue")
	}
	return nil
}

// Schema documents it.
func (onDisconnect) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{services.StopOnDisconnect, services.ContinueOnDisconnect}}
}

// chatBody is a message, with the options of a context.
type chatBody struct {
	ThreadID     *string     `json:"thread_id,omitempty" doc:"The session; of the path, where that has one"`
	Content      string      `json:"content,omitempty" doc:"What the user says; left out with regenerates_turn_id"`
	Edits        *string     `json:"edits_turn_id,omitempty" doc:"The message takes the place of that turn's question, in a branch that begins right before it"`
	Regenerates  *string     `json:"regenerates_turn_id,omitempty" doc:"That turn's question is asked again, in a branch that begins right before it"`
	UserID       *id         `json:"user_id,omitempty" doc:"The identity that speaks; system is answered, but neither reads nor leaves history"`
	RequestID    *id         `json:"request_id,omitempty" doc:"Makes sending again safe; made up where it is missing"`
	OnPending    string      `json:"on_pending,omitempty" enum:"reject,enqueue,interrupt" doc:"What to do while another message is being answered; enqueue by default"`
	SystemPrompt string      `json:"system_prompt,omitempty"`
	MaxMessages  windowSize  `json:"max_messages,omitempty" doc:"Of history; 20 by default"`
	MaxTokens    count       `json:"max_tokens,omitempty" doc:"Of history, counted as the configured model counts them"`
	IdleTimeout  idleTimeout `json:"idle_timeout,omitempty" doc:"Only turns since the last silence that long" example:"30m"`
	Language     string      `json:"language,omitempty" enum:"neutral,translated"`
	Memory       bool        `json:"memory,omitempty"`
	Rewrite      bool        `json:"rewrite,omitempty"`
}

func (in *chatIn) message() (m services.ChatMessage, err error) {
	b := &in.Body
	m = services.ChatMessage{
		ThreadID: in.ThreadID, UserID: b.UserID.text(), Content: b.Content, SystemPrompt: b.SystemPrompt,
		MaxMessages: int(b.MaxMessages), MaxTokens: int(b.MaxTokens), IdleTimeout: b.IdleTimeout.value,
		Language: services.Language(b.Language), Memory: b.Memory, Rewrite: b.Rewrite,
		OnPending: services.OnPending(b.OnPending), OnDisconnect: services.OnDisconnect(in.OnDisconnect),
		Edits: namedTurn(b.Edits), Regenerates: namedTurn(b.Regenerates),
	}
	switch {
	case b.Content == "" && b.Regenerates == nil:
		return m, invalid("content", "is required")
	case b.ThreadID != nil && in.ThreadID != "" && *b.ThreadID != in.ThreadID:
		return m, invalid("thread_id", "is another than the path or the header names")
	case b.ThreadID != nil:
		m.ThreadID = *b.ThreadID
	}
	if m.ThreadID != "" {
		err = validID("thread_id", m.ThreadID)
	}
	if err == nil && (b.RequestID != nil || in.IdempotencyKey != "") {
		m.RequestID, err = requestID(b.RequestID, in.IdempotencyKey)
	}
	return m, err
}

// chatMessage reads a message, and applies its sender's rate. A new thread has no rate of its own yet. A caller that is
// bound to an identity speaks as that identity, in its own threads or in new ones.
func (a *surface) chatMessage(ctx context.Context, in *chatIn) (services.ChatMessage, error) {
	m, err := in.message()
	if err != nil {
		return m, err
	}
	thread := m.ThreadID
	if thread == "new" {
		thread = ""
	}
	if own := bound(ctx); own != "" {
		m.UserID = own
	}
	return m, a.cfg.Admit(ctx, services.Entry{
		Kind: services.KindTurn, SessionID: thread, IdentityID: m.UserID,
		Begins: m.Edits == uuid.Nil && m.Regenerates == uuid.Nil,
	})
}

// chatJSON is an answer of the model.
type chatJSON struct {
	ThreadID       string           `json:"thread_id"`
	TurnID         *uuid.UUID       `json:"turn_id" nullable:"true" doc:"null for a message of the system"`
	RequestID      *string          `json:"request_id"`
	Role           string           `json:"role" enum:"assistant"`
	Content        string           `json:"content"`
	Status         *string          `json:"status" doc:"Of the turn"`
	Duplicate      bool             `json:"duplicate" doc:"The same request was answered before; that answer stands"`
	FinishReason   *string          `json:"finish_reason" doc:"Why the answer ended: stop where it is whole; length, content_filter, interrupted or stopped where it was cut by the model's limit of tokens, its filter, a later message, or by a stop; null where there is none"`
	Interrupted    bool             `json:"interrupted" doc:"A later message ended the answer"`
	Model          string           `json:"model"`
	HistoryTurns   int              `json:"history_turns"`
	RewrittenQuery *string          `json:"rewritten_query"`
	Position       *events.Position `json:"position" example:"0:42"`
}

func newChatJSON(r *services.ChatReply) chatJSON {
	out := chatJSON{
		ThreadID: r.ThreadID, Role: "assistant", Content: r.Content, Duplicate: r.Repeated,
		FinishReason: optional((*string)(&r.Finish)), Interrupted: r.Finish == services.FinishInterrupted,
		Model: r.Model, HistoryTurns: r.HistoryTurns, RewrittenQuery: optional(&r.RewrittenQuery),
	}
	if r.Turn.ID != uuid.Nil {
		status := r.Turn.Status.String()
		out.TurnID, out.RequestID, out.Status, out.Position = &r.Turn.ID, &r.Turn.RequestID, &status, &r.Turn.Position
	}
	return out
}

// chatDeadline bounds a whole answer; the chat's own timeout ends an answer earlier.
const chatDeadline = 5 * time.Minute

// ask sends a message to the chat, and notes in the log line what the prompt was built from.
func (a *surface) ask(ctx context.Context, in *chatIn, to services.Listener) (chatJSON, error) {
	m, err := a.chatMessage(ctx, in)
	if err != nil {
		return chatJSON{}, err
	}
	_, m.Streams = to.(*pieces)
	r, err := a.cfg.Chat.Send(ctx, m, to)
	if err != nil {
		return chatJSON{}, err
	}
	noteReading(ctx, r.Turn.Position, r.Source)
	notePrompt(ctx, r.HistoryTurns, r.HistoryTurns > 0, r.HistoryMessages, r.DroppedTurns)
	return newChatJSON(&r), nil
}

// send responds with the whole answer.
func (a *surface) send(ctx context.Context, in *chatIn) (chatJSON, error) {
	return a.ask(ctx, in, quietListener{ctx: ctx})
}

// quietListener ignores the pieces of an answer, since send waits for the whole answer.
type quietListener struct {
	services.Quiet

	ctx context.Context //nolint:containedctx // notes the session in the log line
}

func (q quietListener) Begun(s services.Step) { noteSession(q.ctx, s.SessionID) }

// chatPatience bounds how long an answer waits for a client that reads nothing. The answer is made for the log all the
// same, and the chat itself gives up a model that is silent for too long.
const chatPatience = 5 * time.Second

// stream answers piece by piece: begun, delta, and then done or error (a problem). A failure before the turn has begun
// is refused as in any other call.
func (a *surface) stream(w http.ResponseWriter, r *http.Request, in *chatIn) error {
	to := a.newPieces(r.Context(), w)
	defer to.sse.End()
	answer, err := a.ask(to.sse.While(r.Context(), a.wire.Still(r, access.TurnsWrite|access.ContextRead)), in, to)
	switch {
	case err == nil:
		to.event("done", answer)
	case to.begun:
		to.event("error", problemOf(err))
	}
	return err
}

// pieces sends an answer while it is made. Its events are numbered from 1 on, whoever is told of them.
type pieces struct {
	quietListener

	header http.Header
	sse    *wire.SSE
	begun  bool
	// number is that of the last event, and behind that of the last one which is not sent.
	number, behind int
}

func (a *surface) newPieces(ctx context.Context, w http.ResponseWriter) *pieces {
	return &pieces{quietListener: quietListener{ctx: ctx}, header: w.Header(), sse: a.wire.NewSSE(w, chatPatience)}
}

// event sends the next event.
func (p *pieces) event(name string, data any) {
	if p.number++; p.number > p.behind {
		p.sse.Events(wire.Event{Name: name, Data: data, ID: strconv.Itoa(p.number)})
	}
}

func (p *pieces) Begun(s services.Step) {
	p.quietListener.Begun(s)
	p.begun = true
	p.header.Set("X-Thread-Id", s.SessionID)
	p.sse.Begin()
	begun := map[string]any{"thread_id": s.SessionID}
	if s.TurnID != uuid.Nil {
		begun["turn_id"] = s.TurnID
	}
	p.event("begun", begun)
}

func (p *pieces) Piece(of services.AnswerPiece) {
	if of.Said() && of.Text != "" {
		p.event("delta", map[string]string{"content": of.Text})
	}
}
