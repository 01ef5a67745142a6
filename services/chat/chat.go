package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// SystemUser is answered, but neither reads nor leaves history.
const SystemUser = "system"

// Config of a Service.
type Config struct {
	Turns    Turns
	Sessions Sessions
	Contexts Contexts
	Model    Model
	Presence Presence
	// OnPending of messages that name none; Enqueue by default.
	OnPending services.OnPending
	// Timeout of an answer; a pending turn that is older holds up nobody. 120 s by default.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Service chats. Safe for concurrent use.
type Service struct {
	cfg Config

	mu      sync.Mutex
	running map[uuid.UUID]*attempt
	// stopping is set when answers are not waited for any more.
	stopping bool
	// failed has the turns that this process gave up, with the time of that: nobody waits for them.
	failed map[uuid.UUID]time.Time
}

var _ services.Chat = (*Service)(nil)

// New makes a service; it does no I/O.
func New(cfg Config) *Service {
	cfg.OnPending = cmp.Or(cfg.OnPending, services.Enqueue)
	cfg.Timeout = cmp.Or(cfg.Timeout, 120*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Service{cfg: cfg, running: map[uuid.UUID]*attempt{}, failed: map[uuid.UUID]time.Time{}}
}

// Send answers a message. The answer is recorded also when ctx ends after the turn has
// begun. Errors: those of Turns and Contexts, conversation.ErrTurnPending under Reject,
// and services.ErrModelFailed.
func (s *Service) Send(
	ctx context.Context, m services.ChatMessage, to services.ChatListener,
) (services.ChatReply, error) {
	if err := complete(&m, s.cfg.OnPending); err != nil {
		return services.ChatReply{}, err
	}
	if err := s.cfg.Contexts.Valid(s.request(m)); err != nil {
		return services.ChatReply{}, err
	}
	if m.UserID == SystemUser {
		return s.aside(ctx, m, to)
	}
	turn, try, err := s.begin(ctx, m, to)
	if err != nil {
		return services.ChatReply{}, err
	}
	reply := services.ChatReply{ThreadID: m.ThreadID, Turn: turn, Model: s.cfg.Model.Name()}
	if turn.Status != conversation.Pending {
		// The same request again: its answer stands.
		reply.Again = true
		if turn.Answer != nil {
			reply.Content, reply.Finish = turn.Answer.AnswerNeutral, finishOf(&turn)
			reply.Turn.Position.Seq = max(turn.Position.Seq, turn.Final) // where the answer stands
			to.Piece(reply.Content)
		}
		return reply, nil
	}
	// From here on the answer is made for the log, and the client may go.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	s.take(turn.ID, try, stop)
	reply, err = s.answer(ctx, m, try, reply, to)
	s.forget(turn.ID, err)
	return reply, err
}

// begin records the message, tells the listener so, and makes this process known as the one that answers it. If the
// message is being answered already, here or by another process, begin waits for that answer.
func (s *Service) begin(
	ctx context.Context, m services.ChatMessage, to services.ChatListener,
) (services.Turn, *attempt, error) {
	id := events.TurnID(m.ThreadID, m.RequestID)
	try, other := s.register(id)
	turn, err := s.start(ctx, m)
	if err == nil {
		to.Begun(m.ThreadID, turn.ID)
	}
	for other != nil && err == nil && turn.Status == conversation.Pending {
		select {
		case <-other:
			if try, other = s.register(id); other == nil {
				turn, err = s.start(ctx, m)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if try == nil {
		return turn, nil, err
	}
	for mine := !turn.Duplicate; err == nil && !mine && turn.Status == conversation.Pending; {
		if mine, err = s.takeOver(ctx, id, try); err == nil {
			turn, err = s.start(ctx, m) // it may have been answered meanwhile
		}
	}
	if err == nil && turn.Status == conversation.Pending {
		try.since, err = s.since(ctx, m, turn)
	}
	if err != nil || turn.Status != conversation.Pending {
		s.forget(id, nil)
	}
	return turn, try, err
}

// since returns the place in the log after which an interrupting message concerns this attempt: messages from before a
// retry had their effect on the earlier attempts.
func (s *Service) since(ctx context.Context, m services.ChatMessage, turn services.Turn) (uint64, error) {
	if !turn.Duplicate {
		return turn.Place, nil
	}
	state, err := s.cfg.Sessions.Session(ctx, m.ThreadID, 0)
	if err != nil {
		return 0, err
	}
	return max(state.Applied, turn.Place), nil
}

// complete fills what may be left out, and refuses what can't be.
func complete(m *services.ChatMessage, onPending services.OnPending) error {
	if m.ThreadID == "" || m.ThreadID == "new" {
		m.ThreadID = uuid.NewString()
	}
	m.RequestID = cmp.Or(m.RequestID, uuid.NewString())
	m.OnPending = cmp.Or(m.OnPending, onPending)
	switch {
	case m.Content == "":
		return &conversation.Invalid{Field: "content", Why: "is required"}
	case m.OnPending != services.Reject && m.OnPending != services.Enqueue && m.OnPending != services.Interrupt:
		return &conversation.Invalid{Field: "on_pending", Why: "must be reject, enqueue or interrupt"}
	}
	return nil
}

func (s *Service) start(ctx context.Context, m services.ChatMessage) (services.Turn, error) {
	c := conversation.Start{
		SessionID: m.ThreadID, RequestID: m.RequestID, IdentityID: m.UserID,
		Question: events.Question{QuestionNeutral: m.Content, PipelineName: pipeline},
	}
	switch m.OnPending {
	case services.Reject:
		busy, err := s.busyIn(ctx, m.ThreadID)
		if err != nil {
			return services.Turn{}, err
		}
		c.Busy = busy
	case services.Interrupt:
		c.Question.PipelineName = interrupting
	case services.Enqueue:
	}
	return s.cfg.Turns.StartTurn(ctx, c)
}

// Names of chat's pipeline in the log: with the second, a turn says that it ends those
// before it.
const (
	pipeline     = "chat"
	interrupting = "chat.interrupt"
)

// request asks for the prompt of a message. The model is shown other questions without an answer, too.
func (s *Service) request(m services.ChatMessage) services.ContextRequest {
	return services.ContextRequest{
		SessionID: m.ThreadID, Message: m.Content, SystemPrompt: m.SystemPrompt,
		MaxMessages: m.MaxMessages, MaxTokens: m.MaxTokens, IdleTimeout: m.IdleTimeout,
		Language: m.Language, Memory: m.Memory, Rewrite: m.Rewrite,
		IncludePending: true, Format: s.cfg.Model.Format(),
	}
}

// prompt returns what the model gets of a context.
func prompt(c *services.Context) Prompt {
	p := Prompt{System: c.System, Messages: make([]json.RawMessage, len(c.Messages))}
	for i, m := range c.Messages {
		p.Messages[i] = m.JSON()
	}
	return p
}

// aside answers the system: without history, and without leaving any.
func (s *Service) aside(
	ctx context.Context, m services.ChatMessage, to services.ChatListener,
) (services.ChatReply, error) {
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	m.Memory = false // it is made of history, too
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

// answer waits for the turn's place, calls the model and records what it says.
func (s *Service) answer(
	ctx context.Context, m services.ChatMessage, try *attempt, reply services.ChatReply, to services.ChatListener,
) (services.ChatReply, error) {
	said := &pieces{to: to}
	text, why, err := s.ask(ctx, m, try, &reply, said)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // whatever failed, it was stopped
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, errSettled) {
		why, err = services.FinishInterrupted, nil
		if text = said.text.String(); text == "" {
			text = interruptedText
		}
	}
	if err != nil {
		s.cfg.Logger.Warn(
			"a turn stays without an answer", "session_id", m.ThreadID, "turn_id", reply.Turn.ID, "model_failed",
			errors.Is(err, services.ErrModelFailed),
		)
		return reply, err
	}
	return s.record(ctx, reply, text, why)
}

// ask returns the model's answer, or errInterrupted, or errSettled.
func (s *Service) ask(
	ctx context.Context, m services.ChatMessage, try *attempt, reply *services.ChatReply, said *pieces,
) (string, services.Finish, error) {
	known, err := s.wait(ctx, m, try, reply.Turn)
	if err != nil {
		return "", "", err
	}
	// The time in a queue is not the answer's.
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	req := s.request(m)
	req.TurnID, req.Known = reply.Turn.ID, known
	built, err := s.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return "", "", err
	}
	reply.HistoryTurns, reply.HistoryMessages = built.HistoryTurns, built.HistoryMessages
	reply.DroppedTurns, reply.Source, reply.RewrittenQuery = built.DroppedTurns, built.Source, built.RewrittenQuery
	calling, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(calling, m.ThreadID, reply.Turn.ID, try, stop) })
	text, why, err := s.cfg.Model.Answer(calling, prompt(&built), said.add)
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

// record gives the turn its answer. If somebody else was faster, their answer stands.
func (s *Service) record(
	ctx context.Context, reply services.ChatReply, text string, why services.Finish,
) (services.ChatReply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
	defer cancel()
	f := conversation.Finalize{
		SessionID: reply.ThreadID, TurnID: reply.Turn.ID, Answer: events.Answer{AnswerNeutral: text},
	}
	if why != services.FinishStop {
		f.FinishReason = string(why)
	}
	turn, err := s.cfg.Turns.FinalizeTurn(ctx, f)
	if err != nil {
		return reply, err
	}
	reply.Turn, reply.Content, reply.Finish = turn, text, finishOf(&turn)
	if turn.Answer != nil {
		reply.Content = turn.Answer.AnswerNeutral
	}
	return reply, nil
}

// finishOf returns why the recorded answer of a turn ended: it is whole if nothing says otherwise.
func finishOf(t *services.Turn) services.Finish {
	var said struct {
		Why services.Finish `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.AnswerMetadata, &said) // of another pipeline it may be anything
	switch said.Why {
	case services.FinishLength, services.FinishFiltered, services.FinishInterrupted:
		return said.Why
	case services.FinishStop:
	}
	return services.FinishStop
}

const (
	recordDeadline  = 15 * time.Second
	interruptedText = "[Interrupted]"
)
