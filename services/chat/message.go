package chat

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// message is the Work on a message of a thread.
type message struct {
	*Service
	services.ChatMessage

	to services.ChatListener
	// anew is the question that is asked again; nil for a message of its own.
	anew  *events.Question
	begun bool
	reply services.ChatReply
}

var _ Work = (*message)(nil)

// Start implements Work, and tells the listener when the message stands in the log for the first time.
func (m *message) Start(ctx context.Context) (services.Turn, error) {
	turn, err := m.start(ctx)
	if err == nil && !m.begun {
		m.begun = true
		m.to.Begun(m.ThreadID, turn.ID)
	}
	return turn, err
}

func (m *message) start(ctx context.Context) (turn services.Turn, err error) {
	c := conversation.Start{
		SessionID: m.ThreadID, RequestID: m.RequestID, IdentityID: m.UserID,
		Question: events.Question{QuestionNeutral: m.Content, PipelineName: pipeline},
	}
	if q := m.anew; q != nil {
		c.Question.QuestionTranslated, c.Question.QuestionMessages = q.QuestionTranslated, q.QuestionMessages
	}
	switch m.OnPending {
	case services.Reject:
		if c.Busy, err = m.busyIn(ctx, m.ThreadID); err != nil {
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

// Answered implements Work.
func (*message) Answered(t *conversation.Turn) bool { return t.Status != conversation.Pending }

// Prompt implements Work.
func (m *message) Prompt(ctx context.Context, turn uuid.UUID, known uint64) (Prompt, error) {
	req := m.request(m.ChatMessage)
	req.TurnID, req.KnownSeq = turn, known
	built, err := m.cfg.Contexts.Build(ctx, req)
	if err != nil {
		return Prompt{}, err
	}
	m.reply.HistoryTurns, m.reply.HistoryMessages = built.HistoryTurns, built.HistoryMessages
	m.reply.DroppedTurns, m.reply.Source = built.DroppedTurns, built.Source
	m.reply.RewrittenQuery = built.RewrittenQuery
	return prompt(&built), nil
}

// Record implements Work. A thread offers no tools, so an answer without a text is none.
func (m *message) Record(
	ctx context.Context, turn uuid.UUID, answer services.ModelAnswer,
) (services.Turn, error) {
	f := conversation.Finalize{
		SessionID: m.ThreadID, TurnID: turn, Answer: events.Answer{AnswerNeutral: answer.Text()}, Usage: answer.Usage,
	}
	if f.Answer.AnswerNeutral == "" {
		f.Answer.AnswerMessages = json.RawMessage(`[{"role":"assistant","content":""}]`)
	}
	if answer.Finish != services.FinishStop {
		f.FinishReason = string(answer.Finish)
	}
	return m.cfg.Turns.FinalizeTurn(ctx, f)
}

// Empty implements Work. An answer that a filter left nothing of is one: the turn has ended, and no later prompt asks
// the same again.
func (*message) Empty(answer services.ModelAnswer) bool {
	return answer.Text() == "" && answer.Finish != services.FinishFiltered
}
