package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	a := &answering{Service: s, m: m, to: to, anew: anew, id: events.TurnID(m.ThreadID, m.RequestID)}
	if err := a.begin(ctx); err != nil {
		return services.ChatReply{}, err
	}
	a.reply = services.ChatReply{ThreadID: m.ThreadID, Turn: a.turn, Model: s.cfg.Model.Name()}
	if a.turn.Status != conversation.Pending {
		// The same request was sent before: return its answer.
		a.reply.Repeated = true
		if a.turn.Answer != nil {
			a.reply.Content, a.reply.Finish = a.turn.Answer.AnswerNeutral, finishOf(&a.turn)
			a.reply.Turn.Position.Seq = max(a.turn.Position.Seq, a.turn.Final) // the position of the answer
			to.Piece(a.reply.Content)
		}
		return a.reply, nil
	}
	// From here on the answer is made for the log, and the client may disconnect.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	a.take(stop)
	err = a.answer(ctx)
	a.end(err)
	return a.reply, err
}

// answering is the work of this process on one message, up to its answer.
type answering struct {
	*Service
	m     services.ChatMessage
	to    services.ChatListener
	id    uuid.UUID // of the turn
	turn  services.Turn
	reply services.ChatReply
	// anew is the question that is asked again; nil for a message of its own.
	anew *events.Question
	// answerText is the answer so far. It is recorded if the answer is interrupted.
	answerText strings.Builder

	stop context.CancelCauseFunc
	// leave ends the announcement; done is closed when this process has finished its work on the message.
	leave func()
	done  chan struct{}
	// since is a sequence of the log: only interrupting messages after it concern this attempt.
	since uint64
}

// begin records the message, informs the listener, and announces that this process answers the message. If the message
// is being answered already, here or by another process, begin waits for that answer.
func (a *answering) begin(ctx context.Context) error {
	other := a.register()
	err := a.start(ctx)
	if err == nil {
		a.to.Begun(a.m.ThreadID, a.turn.ID)
	}
	for other != nil && err == nil && a.turn.Status == conversation.Pending {
		select {
		case <-other:
			if other = a.register(); other == nil {
				err = a.start(ctx)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if other != nil {
		return err
	}
	for mine := !a.turn.Duplicate; err == nil && !mine && a.turn.Status == conversation.Pending; {
		if mine, err = a.takeOver(ctx); err == nil {
			err = a.start(ctx) // the other process may have answered it
		}
	}
	if err == nil && a.turn.Status == conversation.Pending {
		a.since, err = a.begins(ctx)
	}
	if err != nil || a.turn.Status != conversation.Pending {
		a.end(nil)
	}
	return err
}

// begins returns the sequence at which this attempt to answer begins; only later messages interrupt it. A retry begins
// at the session's last event, since the messages up to there ended the earlier attempts.
func (a *answering) begins(ctx context.Context) (uint64, error) {
	if !a.turn.Duplicate {
		return a.turn.Place, nil
	}
	state, err := a.cfg.Sessions.Session(ctx, a.m.ThreadID, 0)
	if err != nil {
		return 0, err
	}
	return max(state.Applied, a.turn.Place), nil
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

// start records the message.
func (a *answering) start(ctx context.Context) (err error) {
	c := conversation.Start{
		SessionID: a.m.ThreadID, RequestID: a.m.RequestID, IdentityID: a.m.UserID,
		Question: events.Question{QuestionNeutral: a.m.Content, PipelineName: pipeline},
	}
	if q := a.anew; q != nil {
		c.Question.QuestionTranslated, c.Question.QuestionMessages = q.QuestionTranslated, q.QuestionMessages
	}
	switch a.m.OnPending {
	case services.Reject:
		if c.Busy, err = a.busyIn(ctx, a.m.ThreadID); err != nil {
			return err
		}
	case services.Interrupt:
		c.Question.PipelineName = interrupting
	case services.Enqueue:
	}
	a.turn, err = a.cfg.Turns.StartTurn(ctx, c)
	return err
}

// Names of chat's pipeline in the log. The second name marks a turn that interrupts the turns before it.
const (
	pipeline     = "chat"
	interrupting = "chat.interrupt"
)

// request returns the request for a message's prompt. The model is also shown earlier questions without an answer.
func (s *Service) request(m services.ChatMessage) services.ContextRequest {
	return services.ContextRequest{
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
	text, why, err := s.cfg.Model.Answer(ctx, prompt(&built), to.Piece)
	if err != nil {
		return services.ChatReply{}, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	}
	return services.ChatReply{ThreadID: m.ThreadID, Content: text, Finish: why, Model: s.cfg.Model.Name()}, nil
}

// answer waits until the turn may go on, calls the model and records its answer.
func (a *answering) answer(ctx context.Context) error {
	text, why, err := a.ask(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the reason for the stop explains the failure
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, errSettled) {
		why, err = services.FinishInterrupted, nil
		text = cmp.Or(a.answerText.String(), interruptedText)
	}
	if err != nil {
		a.cfg.Logger.Warn("a turn stays without an answer", "session_id", a.m.ThreadID, "turn_id", a.id,
			"model_failed", errors.Is(err, services.ErrModelFailed))
		return err
	}
	return a.record(ctx, text, why)
}

// ask returns the model's answer, or errInterrupted, or errSettled.
func (a *answering) ask(ctx context.Context) (string, services.Finish, error) {
	known, err := a.wait(ctx)
	if err != nil {
		return "", "", err
	}
	// The timeout does not include the time in the queue.
	ctx, end := context.WithTimeout(ctx, a.cfg.Timeout)
	defer end()
	req := a.request(a.m)
	req.TurnID, req.KnownSeq = a.id, known
	built, err := a.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return "", "", err
	}
	a.reply.HistoryTurns, a.reply.HistoryMessages = built.HistoryTurns, built.HistoryMessages
	a.reply.DroppedTurns, a.reply.Source = built.DroppedTurns, built.Source
	a.reply.RewrittenQuery = built.RewrittenQuery
	calling, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watch(calling, stop) })
	text, why, err := a.cfg.Model.Answer(calling, prompt(&built), func(piece string) {
		a.answerText.WriteString(piece)
		a.to.Piece(piece)
	})
	cause := context.Cause(calling)
	stop(nil)
	watching.Wait()
	switch {
	case errors.Is(cause, errInterrupted), errors.Is(cause, errSettled):
		return "", "", cause
	case err != nil:
		return "", "", fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	case text == "":
		return "", "", fmt.Errorf("%w: it said nothing", services.ErrModelFailed)
	default:
		return text, why, nil
	}
}

// record writes the answer to the log. If another process has recorded an answer first, that answer stays.
func (a *answering) record(ctx context.Context, text string, why services.Finish) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
	defer cancel()
	f := conversation.Finalize{SessionID: a.m.ThreadID, TurnID: a.id, Answer: events.Answer{AnswerNeutral: text}}
	if why != services.FinishStop {
		f.FinishReason = string(why)
	}
	turn, err := a.cfg.Turns.FinalizeTurn(ctx, f)
	if err != nil {
		return err
	}
	a.reply.Turn, a.reply.Content, a.reply.Finish = turn, text, finishOf(&turn)
	if turn.Answer != nil {
		a.reply.Content = turn.Answer.AnswerNeutral
	}
	return nil
}

// finishOf returns why the recorded answer of a turn ended. Without a record of that, the answer is whole.
func finishOf(t *services.Turn) services.Finish {
	var metadata struct {
		Why services.Finish `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.AnswerMetadata, &metadata) // another pipeline's metadata may have any form
	switch metadata.Why {
	case services.FinishLength, services.FinishFiltered, services.FinishInterrupted:
		return metadata.Why
	case services.FinishStop:
	}
	return services.FinishStop
}

const (
	recordDeadline  = 15 * time.Second
	interruptedText = "[Interrupted]"
)
