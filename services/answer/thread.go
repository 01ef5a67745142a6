package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// SystemUser is a user whose messages get an answer, but without history, and are not recorded.
const SystemUser = "system"

// Send answers a message. Once the turn has begun, the answer is recorded even if ctx ends. Errors: those of Turns and
// Contexts, decide.ErrTurnPending under Reject, and services.ErrModelFailed.
func (s *Service) Send(
	ctx context.Context, m services.ChatMessage, to services.Listener,
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
		return s.alone(ctx, m, to)
	}
	w := &posted{Service: s, ChatMessage: m, anew: anew}
	heard := s.listen(to)
	defer heard.leave()
	done, err := s.do(ctx, task{
		session: m.ThreadID, key: events.TurnID(m.ThreadID, m.RequestID), onPending: m.OnPending, work: w,
		ends: s.endsWith(m.OnDisconnect, false), keeps: m.Streams,
	}, heard)
	if !done.begun {
		return services.ChatReply{}, err
	}
	turn := done.turn
	w.reply.ThreadID, w.reply.Turn, w.reply.Repeated = m.ThreadID, turn, done.repeated
	w.reply.Model = s.cfg.Model.Name()
	if turn.Answer != nil && err == nil {
		w.reply.Content, w.reply.Finish = turn.Answer.AnswerNeutral, finishOf(&turn)
	}
	if turn.Answer != nil && done.repeated {
		w.reply.Turn.Position.Seq = max(turn.Position.Seq, turn.Final) // the position of the answer
		heard.Piece(said(w.reply.Content))
	}
	heard.Ended(services.Answered{
		Step: w.step(&turn), At: turn.FinalizedAt, Finish: w.reply.Finish, Err: err, Reply: &w.reply,
	})
	return w.reply, err
}

// said returns a text as a piece of an answer.
func said(text string) services.AnswerPiece {
	return services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: text}}
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
		return &decide.Invalid{Field: "content", Why: "is required"}
	case m.OnPending != services.Reject && m.OnPending != services.Enqueue && m.OnPending != services.Interrupt:
		return &decide.Invalid{Field: "on_pending", Why: "must be reject, enqueue or interrupt"}
	}
	return nil
}

// askedAnew returns the question that a message asks again, and makes it the message's content; nil for a message with
// a content of its own.
func (s *Service) askedAnew(ctx context.Context, m *services.ChatMessage) (*events.Question, error) {
	switch {
	case m.Edits != uuid.Nil && m.Regenerates != uuid.Nil:
		return nil, &decide.Invalid{Field: "regenerates_turn_id", Why: "stands beside edits_turn_id: send one"}
	case m.UserID == SystemUser && (m.Edits != uuid.Nil || m.Regenerates != uuid.Nil):
		return nil, &decide.Invalid{Field: "user_id", Why: "system leaves no turns, and so edits none"}
	case m.Regenerates != uuid.Nil && m.Content != "":
		return nil, &decide.Invalid{Field: "content", Why: "is that of the turn: leave it out"}
	case m.Regenerates == uuid.Nil:
		return nil, nil //nolint:nilnil // most messages ask nothing again
	}
	anew, err := s.cfg.Questions.Question(ctx, m.ThreadID, m.Regenerates)
	if errors.Is(err, decide.ErrTurnRedacted) {
		anew, err = s.askedBefore(ctx, *m)
	}
	if err == nil {
		m.Content = anew.QuestionNeutral
	}
	return anew, err
}

// askedBefore returns the question of a message that asked a turn's question anew before that turn was redacted: the
// branch has it. Without such a branch it is decide.ErrTurnRedacted.
func (s *Service) askedBefore(ctx context.Context, m services.ChatMessage) (*events.Question, error) {
	if err := s.branch(ctx, &m); err != nil {
		return nil, err
	}
	anew, err := s.cfg.Questions.Question(ctx, m.ThreadID, events.TurnID(m.ThreadID, m.RequestID))
	if errors.Is(err, decide.ErrTurnNotFound) {
		err = decide.ErrTurnRedacted
	}
	return anew, err
}

// branch forks the thread right before the turn that a message edits or regenerates, with the message's request id, so
// that the same message again goes to the same branch. The message then is one of the branch.
func (s *Service) branch(ctx context.Context, m *services.ChatMessage) error {
	before := m.Edits
	if m.Regenerates != uuid.Nil {
		before = m.Regenerates
	}
	if before == uuid.Nil {
		return nil
	}
	made, err := s.cfg.SessionWrites.ForkSession(ctx, decide.ForkSession{
		SessionID: m.ThreadID, RequestID: m.RequestID, BeforeTurnID: before, IdentityID: m.UserID,
	})
	m.ThreadID = made.SessionID
	return err
}

// request returns the request for a message's prompt. The model is also shown earlier questions without an answer.
func (s *Service) request(m services.ChatMessage) services.ContextRequest {
	return services.ContextRequest{
		MaxPrompt: s.room(0, s.cfg.Context/4), Truncate: true,
		SessionID: m.ThreadID, Message: m.Content, SystemPrompt: m.SystemPrompt,
		MaxMessages: m.MaxMessages, MaxTokens: m.MaxTokens, IdleTimeout: m.IdleTimeout,
		Language: m.Language, Memory: m.Memory, Rewrite: m.Rewrite,
		IncludePending: true, Summary: s.cfg.Summaries, Format: s.cfg.Model.Format(),
	}
}

// alone answers the system user: it reads no history and records nothing.
func (s *Service) alone(
	ctx context.Context, m services.ChatMessage, to services.Listener,
) (services.ChatReply, error) {
	m.Memory = false // the memory is made of history too
	req := s.request(m)
	req.History = []json.RawMessage{}
	built, err := s.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return services.ChatReply{}, err
	}
	step := services.Step{SessionID: m.ThreadID, Model: s.cfg.Model.Name()}
	answer, err := s.aside(ctx, promptOf(&built, services.ModelOptions{}), step, to)
	if err != nil {
		return services.ChatReply{}, err
	}
	to.Ended(services.Answered{Step: step, Finish: answer.Finish})
	return services.ChatReply{
		ThreadID: m.ThreadID, Content: answer.Text(), Finish: answer.Finish, Model: step.Model,
	}, nil
}

// finishOf returns why the recorded answer of a turn ended. Without a record of that, the answer is whole.
func finishOf(t *services.Turn) services.Finish {
	var metadata struct {
		Why services.Finish `json:"finish_reason"`
	}
	_ = json.Unmarshal(t.Metadata(), &metadata) // another pipeline's metadata may have any form
	return cmp.Or(metadata.Why, services.FinishStop)
}

// posted is the work on a message of a thread.
type posted struct {
	*Service
	services.ChatMessage

	// anew is the question that is asked again; nil for a message of its own.
	anew  *events.Question
	reply services.ChatReply
}

func (m *posted) step(t *services.Turn) services.Step {
	return services.Step{
		SessionID: m.ThreadID, TurnID: t.ID, CreatedAt: t.CreatedAt, Model: m.cfg.Model.Name(), Stored: true,
	}
}

func (*posted) as(string) {}

func (m *posted) start(ctx context.Context) (turn services.Turn, err error) {
	c := decide.Start{
		SessionID: m.ThreadID, RequestID: m.RequestID, IdentityID: m.UserID,
		Question: events.Question{QuestionNeutral: m.Content, PipelineName: pipeline},
	}
	if q := m.anew; q != nil {
		c.Question.QuestionTranslated, c.Question.QuestionMessages = q.QuestionTranslated, q.QuestionMessages
	}
	switch m.OnPending {
	case services.Reject:
		c.Busy, err = m.busyIn(ctx, m.ThreadID, func(t *session.Turn) bool {
			return m.busy(ctx, m.ThreadID, t, open{key: t.ID}, t.CreatedAt)
		})
		if err != nil {
			return turn, err
		}
	case services.Interrupt:
		c.Question.PipelineName = interrupting
	case services.Enqueue:
	}
	return m.cfg.Turns.StartTurn(ctx, c)
}

// Names of chat's pipeline in the log. The second name marks a turn that interrupts the turns before it.
const (
	pipeline     = "chat"
	interrupting = "chat.interrupt"
)

func (*posted) answered(t *session.Turn) bool { return t.Status != session.Pending }

func (m *posted) prompt(ctx context.Context, turn uuid.UUID, known uint64) (services.Prompt, error) {
	req := m.request(m.ChatMessage)
	req.TurnID, req.KnownSeq = turn, known
	built, err := m.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return services.Prompt{}, err
	}
	m.reply.HistoryTurns, m.reply.HistoryMessages = built.HistoryTurns, built.HistoryMessages
	m.reply.DroppedTurns, m.reply.Source = built.DroppedTurns, built.Source
	m.reply.RewrittenQuery = built.RewrittenQuery
	p := promptOf(&built, services.ModelOptions{})
	p.Settings = m.kept(req, &built, p)
	return p, nil
}

// record records the answer. A thread offers no tools, so an answer without a text is none.
func (m *posted) record(
	ctx context.Context, turn uuid.UUID, answer services.ModelAnswer,
) (services.Turn, error) {
	f := decide.Finalize{
		SessionID: m.ThreadID, TurnID: turn, Answer: events.Answer{AnswerNeutral: answer.Text()}, Usage: answer.Usage,
		FinishReason: reason(answer),
	}
	if f.Answer.AnswerNeutral == "" {
		f.Answer.AnswerMessages = json.RawMessage(`[{"role":"assistant","content":""}]`)
	}
	if answer.Prompt != nil {
		f.Settings = encode(askedWith{answer.Prompt})
	}
	return m.cfg.Turns.FinalizeTurn(ctx, f)
}

// piece: what is told to the user is one text, as it is recorded; a thread offers no tools, and keeps no reasoning.
func (*posted) piece(p services.AnswerPiece) (services.AnswerPiece, bool) {
	return said(p.Text), p.Said() && p.Text != ""
}

// empty: an answer that a filter left nothing of is one. The turn has ended, and no later prompt asks the same again.
func (*posted) empty(answer services.ModelAnswer) bool {
	return answer.Text() == "" && answer.Finish != services.FinishFiltered
}
