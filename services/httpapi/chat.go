package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

type threadIn struct {
	ThreadID       string `path:"thread_id" doc:"The session; new makes one"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	body[chatBody]
}

type chatIn struct {
	ThreadID       string `header:"X-Thread-Id" doc:"The session, where the body has none; without either, or new, one is made"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	body[chatBody]
}

// chatBody is a message, with the options of a context.
type chatBody struct {
	ThreadID     *string     `json:"thread_id,omitempty" doc:"The session; of the path, where that has one"`
	Content      string      `json:"content" doc:"What the user says"`
	UserID       *string     `json:"user_id,omitempty" doc:"The identity that speaks; system is answered, but neither reads nor leaves history"`
	RequestID    *string     `json:"request_id,omitempty" doc:"Makes sending again safe; made up where it is missing"`
	OnPending    string      `json:"on_pending,omitempty" enum:"reject,enqueue,interrupt" doc:"What to do while another message is being answered; enqueue by default"`
	SystemPrompt string      `json:"system_prompt,omitempty"`
	MaxMessages  windowSize  `json:"max_messages,omitempty" doc:"Of history; 20 by default"`
	MaxTokens    count       `json:"max_tokens,omitempty" doc:"Of history, estimated"`
	IdleTimeout  idleTimeout `json:"idle_timeout,omitempty" doc:"Only turns since the last silence that long" example:"30m"`
	Language     string      `json:"language,omitempty" enum:"neutral,translated"`
	Memory       bool        `json:"memory,omitempty"`
	Rewrite      bool        `json:"rewrite,omitempty"`
}

func (b chatBody) message(threadID, key string) (m services.ChatMessage, err error) {
	m = services.ChatMessage{
		ThreadID: threadID, Content: b.Content, OnPending: services.OnPending(b.OnPending),
		SystemPrompt: b.SystemPrompt,
		MaxMessages:  int(b.MaxMessages), MaxTokens: int(b.MaxTokens), IdleTimeout: b.IdleTimeout.value,
		Language: services.Language(b.Language), Memory: b.Memory, Rewrite: b.Rewrite,
	}
	if b.Content == "" {
		return m, invalid("content", "is required")
	}
	if b.ThreadID != nil {
		if threadID != "" && *b.ThreadID != threadID {
			return m, invalid("thread_id", "is another than the path or the header names")
		}
		m.ThreadID = *b.ThreadID
	}
	if m.ThreadID != "" {
		if err := validID("thread_id", m.ThreadID); err != nil {
			return m, err
		}
	}
	if m.UserID, err = optionalID("user_id", b.UserID); err != nil {
		return m, err
	}
	if b.RequestID != nil || key != "" {
		m.RequestID, err = requestID(b.RequestID, key)
	}
	return m, err
}

// chatMessage reads a message, and holds who sends it to the rate. A thread that is new
// has none yet. A caller who is bound to an identity speaks as that, in threads of its
// own or new ones.
func (a *API) chatMessage(ctx context.Context, threadID, key string, b chatBody) (services.ChatMessage, error) {
	m, err := b.message(threadID, key)
	if err != nil {
		return m, err
	}
	thread := m.ThreadID
	if thread == "new" {
		thread = ""
	}
	if own := callOf(ctx).caller.IdentityID; own != "" {
		m.UserID = own
		if thread != "" {
			err = a.reach(ctx, thread)
		}
	}
	if err != nil {
		return m, err
	}
	return m, a.limited(ctx, kindTurn, thread, m.UserID)
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
	FinishReason   *string          `json:"finish_reason" doc:"Why the answer ended: stop where it is whole; length, content_filter or interrupted where it was cut by the model's limit of tokens, its filter, or a later message; null where there is none"`
	Interrupted    bool             `json:"interrupted" doc:"A later message ended the answer"`
	Model          string           `json:"model"`
	HistoryTurns   int              `json:"history_turns"`
	RewrittenQuery *string          `json:"rewritten_query"`
	Position       *events.Position `json:"position" example:"0:42"`
}

func newChatJSON(r *services.ChatReply) chatJSON {
	out := chatJSON{
		ThreadID: r.ThreadID, Role: "assistant", Content: r.Content, Duplicate: r.Again,
		FinishReason: optional((*string)(&r.Finish)), Interrupted: r.Finish == services.FinishInterrupted,
		Model: r.Model, HistoryTurns: r.HistoryTurns, RewrittenQuery: optional(&r.RewrittenQuery),
	}
	if r.Turn.ID != uuid.Nil {
		status := r.Turn.Status.String()
		out.TurnID, out.RequestID, out.Status, out.Position = &r.Turn.ID, &r.Turn.RequestID, &status, &r.Turn.Position
	}
	return out
}

type chatOut struct{ Body chatJSON }

func (a *API) thread(ctx context.Context, in *threadIn) (*chatOut, error) {
	return a.send(ctx, in.ThreadID, in.IdempotencyKey, in.value)
}

func (a *API) chat(ctx context.Context, in *chatIn) (*chatOut, error) {
	return a.send(ctx, in.ThreadID, in.IdempotencyKey, in.value)
}

func (a *API) threadStream(ctx context.Context, in *threadIn) (*streamOut, error) {
	return a.stream(ctx, in.ThreadID, in.IdempotencyKey, in.value)
}

func (a *API) chatStream(ctx context.Context, in *chatIn) (*streamOut, error) {
	return a.stream(ctx, in.ThreadID, in.IdempotencyKey, in.value)
}

// chatDeadline is for a whole answer: the chat ends one before.
const chatDeadline = 5 * time.Minute

// send answers with the whole answer.
func (a *API) send(ctx context.Context, threadID, key string, b chatBody) (*chatOut, error) {
	m, err := a.chatMessage(ctx, threadID, key, b)
	if err != nil {
		return nil, err
	}
	reply, err := a.cfg.Chat.Send(ctx, m, quietListener{ctx})
	if err != nil {
		return nil, err
	}
	callOf(ctx).answered(&reply)
	return &chatOut{newChatJSON(&reply)}, nil
}

// answered notes what the prompt of a reply was built of.
func (c *call) answered(r *services.ChatReply) {
	c.position, c.turns, c.from = r.Turn.Position, r.HistoryTurns, r.Source
	c.prompt = &prompted{r.HistoryTurns > 0, r.HistoryMessages, r.DroppedTurns}
}

// quietListener waits for the whole answer.
type quietListener struct{ ctx context.Context } //nolint:containedctx // notes the session in the log line

func (q quietListener) Begun(threadID string, _ uuid.UUID) { callOf(q.ctx).session = threadID }
func (quietListener) Piece(string)                         {}

type streamOut struct{ Body func(huma.Context) }

// stream answers piece by piece. What goes wrong before the turn has begun is a problem
// as of any other call.
func (a *API) stream(ctx context.Context, threadID, key string, b chatBody) (*streamOut, error) {
	m, err := a.chatMessage(ctx, threadID, key, b)
	if err != nil {
		return nil, err
	}
	call := callOf(ctx)
	return &streamOut{func(ctx huma.Context) {
		_, w := humago.Unwrap(ctx)
		s := &sse{ctx: ctx, call: call, patience: min(a.cfg.StreamPatience, chatPatience), silence: a.cfg.Heartbeat}
		defer s.end()
		reply, err := a.cfg.Chat.Send(ctx.Context(), m, s)
		switch {
		case err == nil:
			call.answered(&reply)
			s.event("done", newChatJSON(&reply))
		case s.begun:
			p := problemOf(err)
			call.err = p
			s.event("error", p)
		default:
			p := problemOf(err)
			call.err = p
			p.write(w)
		}
	}}, nil
}

// chatPatience is how long an answer waits for a client that takes nothing. It is made for
// the log all the same, and a model that says nothing for too long is given up by itself.
const chatPatience = 5 * time.Second

// sse writes server-sent events: begun, delta, and done or error (a problem), and a comment
// where there is none for a while, so that nobody on the way takes a message that waits for
// its turn for a dead connection. A client that takes nothing for too long is given up:
// what comes then is for the log alone.
type sse struct {
	ctx               huma.Context
	call              *call
	patience, silence time.Duration
	begun             bool

	mu    sync.Mutex // what follows, and writing
	gone  bool
	quiet *time.Timer
}

func (s *sse) Begun(threadID string, turnID uuid.UUID) {
	s.call.session = threadID
	s.begun = true
	s.ctx.SetHeader("Content-Type", "text/event-stream")
	s.ctx.SetHeader("X-Thread-Id", threadID)
	s.ctx.SetStatus(http.StatusOK)
	begun := map[string]any{"thread_id": threadID}
	if turnID != uuid.Nil {
		begun["turn_id"] = turnID
	}
	s.event("begun", begun)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(s.silence, func() { s.write(": heartbeat\n\n") })
}

// end stops the heartbeats: the connection is the server's again.
func (s *sse) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.quiet != nil {
		s.quiet.Stop()
		_, w := humago.Unwrap(s.ctx)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.patience)) // for its end
	}
}

func (s *sse) Piece(text string) { s.event("delta", map[string]string{"content": text}) }

func (s *sse) event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return
	}
	s.write("event: " + name + "\ndata: " + string(raw) + "\n\n")
}

func (s *sse) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	_, w := humago.Unwrap(s.ctx)
	out := http.NewResponseController(w)
	s.gone = within(out.SetWriteDeadline, s.patience, func() error {
		_, err := w.Write([]byte(text))
		return errors.Join(err, out.Flush())
	}) != nil
	if s.quiet != nil {
		s.quiet.Reset(s.silence)
	}
}
