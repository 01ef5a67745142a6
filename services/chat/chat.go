package chat

import (
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
)

// Policy says what becomes of a message that comes while another is being answered.
type Policy string

// Reject refuses it (conversation.ErrTurnPending). Enqueue lets it wait for its turn.
// Interrupt ends the answers before it where they are.
const (
	Reject    Policy = "reject"
	Enqueue   Policy = "enqueue"
	Interrupt Policy = "interrupt"
)

// SystemUser is answered, but neither reads nor leaves history.
const SystemUser = "system"

// ErrModel says that the model did not answer, or not to the end. The turn is pending.
var ErrModel = errors.New("the model did not answer")

// Config of a Service.
type Config struct {
	Turns    Turns
	Sessions Sessions
	Contexts Contexts
	Model    Model
	Presence Presence
	Policy   Policy // of messages that name none; Enqueue by default
	// Timeout of an answer; a pending turn that is older holds up nobody. 120 s by default.
	Timeout time.Duration
	Now     func() time.Time
	Logger  *slog.Logger
}

// Service chats. Safe for concurrent use.
type Service struct {
	cfg Config

	mu      sync.Mutex
	running map[uuid.UUID]*attempt
	// stopping is set when answers are not waited for any more.
	stopping bool
	// failed are turns that this process gave up, with when: nobody waits for them.
	failed map[uuid.UUID]time.Time
}

// New makes a service; it does no I/O.
func New(cfg Config) *Service {
	if cfg.Policy == "" {
		cfg.Policy = Enqueue
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 120 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, running: map[uuid.UUID]*attempt{}, failed: map[uuid.UUID]time.Time{}}
}

// Message is what a user says in a thread. An empty RequestID is made up.
type Message struct {
	ThreadID, UserID, RequestID, Content string
	Policy                               Policy
	Options
}

// Reply is the model's answer. Of a message of the system, Turn is empty.
type Reply struct {
	ThreadID string
	Turn     Turn
	Content  string
	Model    string
	// What was taken from history for the prompt, and from where.
	HistoryTurns, HistoryMessages, DroppedTurns int
	Source                                      string
	RewrittenQuery                              string
	// Again: the request was answered before.
	Again bool
	// Finish says why the answer ended; "" where there is none.
	Finish Finish
}

// Listener is told of a reply while it is made. Its methods are called by one
// goroutine, in order; they must not block for long.
type Listener interface {
	// Begun tells the thread and the turn, before the model is called.
	Begun(threadID string, turnID uuid.UUID)
	Piece(text string)
}

// Send answers a message. The answer is recorded also when ctx ends after the turn has
// begun. Errors: those of Turns and Contexts, conversation.ErrTurnPending under Reject,
// and ErrModel.
func (s *Service) Send(ctx context.Context, m Message, to Listener) (Reply, error) {
	if err := m.complete(s.cfg.Policy); err != nil {
		return Reply{}, err
	}
	if err := s.cfg.Contexts.Valid(PromptRequest{SessionID: m.ThreadID, Message: m.Content, Options: m.Options}); err != nil {
		return Reply{}, err
	}
	if m.UserID == SystemUser {
		return s.aside(ctx, m, to)
	}
	turn, try, err := s.begin(ctx, m, to)
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{ThreadID: m.ThreadID, Turn: turn, Model: s.cfg.Model.Name()}
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

// begin records the message, says so, and makes this process known as the one that answers
// it. A message that is being answered already, here or by another process, is waited for:
// its answer is this one's.
func (s *Service) begin(ctx context.Context, m Message, to Listener) (Turn, *attempt, error) {
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

// since is the place in the log after which a message that interrupts concerns this
// attempt: those before a retry had their effect on the attempts before it.
func (s *Service) since(ctx context.Context, m Message, turn Turn) (uint64, error) {
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
func (m *Message) complete(policy Policy) error {
	if m.ThreadID == "" || m.ThreadID == "new" {
		m.ThreadID = uuid.NewString()
	}
	if m.RequestID == "" {
		m.RequestID = uuid.NewString()
	}
	if m.Policy == "" {
		m.Policy = policy
	}
	switch {
	case m.Content == "":
		return &conversation.Invalid{Field: "content", Why: "is required"}
	case m.Policy != Reject && m.Policy != Enqueue && m.Policy != Interrupt:
		return &conversation.Invalid{Field: "on_pending", Why: "must be reject, enqueue or interrupt"}
	}
	return nil
}

func (s *Service) start(ctx context.Context, m Message) (Turn, error) {
	c := conversation.Start{
		SessionID: m.ThreadID, RequestID: m.RequestID, IdentityID: m.UserID,
		Question: events.Question{QuestionNeutral: m.Content, PipelineName: pipeline},
	}
	switch m.Policy {
	case Reject:
		busy, err := s.busyIn(ctx, m.ThreadID)
		if err != nil {
			return Turn{}, err
		}
		c.Busy = busy
	case Interrupt:
		c.Question.PipelineName = interrupting
	case Enqueue:
	}
	return s.cfg.Turns.StartTurn(ctx, c)
}

// Names of chat's pipeline in the log: with the second, a turn says that it ends those
// before it.
const (
	pipeline     = "chat"
	interrupting = "chat.interrupt"
)

// aside answers the system: no history, and none left.
func (s *Service) aside(ctx context.Context, m Message, to Listener) (Reply, error) {
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	m.Memory = false // it is made of history, too
	prompt, err := s.cfg.Contexts.Build(ctx, PromptRequest{SessionID: m.ThreadID, Message: m.Content, Fresh: true, Options: m.Options})
	if err != nil {
		return Reply{}, err
	}
	to.Begun(m.ThreadID, uuid.Nil)
	text, why, err := s.cfg.Model.Answer(ctx, prompt, to.Piece)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrModel, err)
	}
	return Reply{ThreadID: m.ThreadID, Content: text, Finish: why, Model: s.cfg.Model.Name()}, nil
}

// answer waits for the turn's place, calls the model and records what it says.
func (s *Service) answer(ctx context.Context, m Message, try *attempt, reply Reply, to Listener) (Reply, error) {
	said := &pieces{to: to}
	text, why, err := s.ask(ctx, m, try, &reply, said)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // whatever failed, it was stopped
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, errSettled) {
		why, err = Interrupted, nil
		if text = said.text.String(); text == "" {
			text = interruptedText
		}
	}
	if err != nil {
		s.cfg.Logger.Warn("a turn stays without an answer", "session_id", m.ThreadID, "turn_id", reply.Turn.ID, "model_failed", errors.Is(err, ErrModel))
		return reply, err
	}
	return s.record(ctx, reply, text, why)
}

// ask gives the model's answer, or errInterrupted, or errSettled.
func (s *Service) ask(ctx context.Context, m Message, try *attempt, reply *Reply, said *pieces) (string, Finish, error) {
	known, err := s.wait(ctx, m, try, reply.Turn)
	if err != nil {
		return "", "", err
	}
	// The time in a queue is not the answer's.
	ctx, end := context.WithTimeout(ctx, s.cfg.Timeout)
	defer end()
	prompt, err := s.cfg.Contexts.Build(ctx, PromptRequest{SessionID: m.ThreadID, Message: m.Content, TurnID: reply.Turn.ID, Known: known, Options: m.Options})
	if err != nil {
		return "", "", err
	}
	reply.HistoryTurns, reply.HistoryMessages, reply.DroppedTurns = prompt.HistoryTurns, prompt.HistoryMessages, prompt.DroppedTurns
	reply.Source, reply.RewrittenQuery = prompt.Source, prompt.RewrittenQuery
	calling, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(calling, m.ThreadID, reply.Turn.ID, try, stop) })
	text, why, err := s.cfg.Model.Answer(calling, prompt, said.add)
	cause := context.Cause(calling)
	stop(nil)
	watching.Wait()
	switch {
	case errors.Is(cause, errInterrupted), errors.Is(cause, errSettled):
		return "", "", cause
	case err != nil:
		return "", "", fmt.Errorf("%w: %w", ErrModel, err)
	case text == "":
		return "", "", fmt.Errorf("%w: it said nothing", ErrModel)
	default:
		return text, why, nil
	}
}

// record gives the turn its answer. Where somebody else was faster, theirs stands.
func (s *Service) record(ctx context.Context, reply Reply, text string, why Finish) (Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
	defer cancel()
	f := conversation.Finalize{SessionID: reply.ThreadID, TurnID: reply.Turn.ID, Answer: events.Answer{AnswerNeutral: text}}
	if why != Stop {
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

// finishOf tells why the recorded answer of a turn ended: it is whole where nothing says else.
func finishOf(t *Turn) Finish {
	var said struct {
		Why Finish `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.AnswerMetadata, &said) // of another pipeline it may be anything
	switch said.Why {
	case Length, Filtered, Interrupted:
		return said.Why
	case Stop:
	}
	return Stop
}

const (
	recordDeadline  = 15 * time.Second
	interruptedText = "[Interrupted]"
)
