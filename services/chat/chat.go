package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// SystemUser is a user whose messages get an answer, but without history, and are not recorded.
const SystemUser = "system"

// Config of a Service.
type Config struct {
	Turns     Turns
	Sessions  Sessions
	Questions Questions
	Contexts  Contexts
	Model     Model
	Presence  Presence
	// OnPending applies to messages that name none; Enqueue by default.
	OnPending services.OnPending
	// Summaries: prompts have a summary in the place of turns that the window leaves out.
	Summaries bool
	// Context is how many tokens the model takes, with those of its answer; 0: that is not known.
	Context int
	// Timeout of an answer; 120 s by default. A pending turn that is older holds up no other turn.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Service chats. Safe for concurrent use.
type Service struct {
	cfg Config

	mu      sync.Mutex
	running map[uuid.UUID]*answering
	// stopping is set when this process no longer completes answers.
	stopping bool
	// failed holds the turns that this process gave up, with the time at which it did: no turn waits for them.
	failed map[uuid.UUID]time.Time
}

var _ services.Chat = (*Service)(nil)

// New makes a service; it does no I/O.
func New(cfg Config) *Service {
	cfg.OnPending = cmp.Or(cfg.OnPending, services.Enqueue)
	cfg.Timeout = cmp.Or(cfg.Timeout, 120*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Service{cfg: cfg, running: map[uuid.UUID]*answering{}, failed: map[uuid.UUID]time.Time{}}
}

// Send answers a message. Once the turn has begun, the answer is recorded even if ctx ends. Errors: those of Turns and
// Contexts, conversation.ErrTurnPending under Reject, and services.ErrModelFailed.
func (s *Service) Send(
	ctx context.Context, m services.ChatMessage, to services.ChatListener,
) (services.ChatReply, error) {
	if err := complete(&m, s.cfg.OnPending); err != nil {
		return services.ChatReply{}, err
	}
	anew, err := s.askedAnew(ctx, &m)
	if err == nil {
		err = s.cfg.Contexts.Valid(s.request(m))
	}
	if err == nil {
		err = s.branch(ctx, &m)
	}
	if err != nil {
		return services.ChatReply{}, err
	}
	if m.UserID == SystemUser {
		return s.aside(ctx, m, to)
	}
	w := &message{Service: s, ChatMessage: m, to: to, anew: anew}
	turn, repeated, err := s.Do(ctx, Task{
		SessionID: m.ThreadID, Key: events.TurnID(m.ThreadID, m.RequestID), OnPending: m.OnPending, Work: w,
	}, said(to.Piece))
	if !w.begun {
		return services.ChatReply{}, err
	}
	w.reply.ThreadID, w.reply.Turn, w.reply.Model, w.reply.Repeated = m.ThreadID, turn, s.cfg.Model.Name(), repeated
	if turn.Answer != nil && err == nil {
		w.reply.Content, w.reply.Finish = turn.Answer.AnswerNeutral, finishOf(&turn)
	}
	if turn.Answer != nil && repeated {
		w.reply.Turn.Position.Seq = max(turn.Position.Seq, turn.Final) // the position of the answer
		to.Piece(w.reply.Content)
	}
	return w.reply, err
}

// complete fills the fields that may be left out, and refuses invalid ones.
func complete(m *services.ChatMessage, onPending services.OnPending) error {
	if m.ThreadID == "" || m.ThreadID == "new" {
		m.ThreadID = uuid.NewString()
	}
	m.RequestID = cmp.Or(m.RequestID, uuid.NewString())
	m.OnPending = cmp.Or(m.OnPending, onPending)
	switch {
	case m.Content == "" && m.Regenerates == uuid.Nil:
		return &conversation.Invalid{Field: "content", Why: "is required"}
	case m.OnPending != services.Reject && m.OnPending != services.Enqueue && m.OnPending != services.Interrupt:
		return &conversation.Invalid{Field: "on_pending", Why: "must be reject, enqueue or interrupt"}
	}
	return nil
}

// request returns the request for a message's prompt. The model is also shown earlier questions without an answer.
func (s *Service) request(m services.ChatMessage) services.ContextRequest {
	// A quarter of what the model takes is left for its answer.
	return services.ContextRequest{
		MaxPrompt: s.cfg.Context - s.cfg.Context/4, Truncate: true,
		SessionID: m.ThreadID, Message: m.Content, SystemPrompt: m.SystemPrompt,
		MaxMessages: m.MaxMessages, MaxTokens: m.MaxTokens, IdleTimeout: m.IdleTimeout,
		Language: m.Language, Memory: m.Memory, Rewrite: m.Rewrite,
		IncludePending: true, Summary: s.cfg.Summaries, Format: s.cfg.Model.Format(),
	}
}

// prompt returns the part of a context that the model gets.
func prompt(c *services.Context) Prompt {
	p := Prompt{System: c.System, Messages: make([]json.RawMessage, len(c.Messages))}
	for i, m := range c.Messages {
		p.Messages[i] = m.JSON()
	}
	return p
}

// aside answers the system user: it reads no history and records nothing.
func (s *Service) aside(
	ctx context.Context, m services.ChatMessage, to services.ChatListener,
) (services.ChatReply, error) {
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	m.Memory = false // the memory is made of history too
	req := s.request(m)
	req.History = []json.RawMessage{}
	built, err := s.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return services.ChatReply{}, err
	}
	to.Begun(m.ThreadID, uuid.Nil)
	answer, err := s.cfg.Model.Answer(ctx, prompt(&built), said(to.Piece))
	if err != nil {
		return services.ChatReply{}, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	}
	return services.ChatReply{
		ThreadID: m.ThreadID, Content: answer.Text(), Finish: answer.Finish, Model: s.cfg.Model.Name(),
	}, nil
}

// said passes on the pieces of an answer that are told to the user.
func said(piece func(string)) func(services.AnswerPiece) {
	return func(p services.AnswerPiece) {
		if p.Said() && p.Text != "" {
			piece(p.Text)
		}
	}
}

// finishOf returns why the recorded answer of a turn ended. Without a record of that, the answer is whole.
func finishOf(t *services.Turn) services.Finish {
	var metadata struct {
		Why services.Finish `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.AnswerMetadata, &metadata) // another pipeline's metadata may have any form
	return cmp.Or(metadata.Why, services.FinishStop)
}
