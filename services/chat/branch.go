package chat

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// askedAnew returns the question that a message asks again, and makes it the message's content; nil for a message with
// a content of its own.
func (s *Service) askedAnew(ctx context.Context, m *services.ChatMessage) (*events.Question, error) {
	switch {
	case m.Edits != uuid.Nil && m.Regenerates != uuid.Nil:
		return nil, &conversation.Invalid{Field: "regenerates_turn_id", Why: "stands beside edits_turn_id: send one"}
	case m.UserID == SystemUser && (m.Edits != uuid.Nil || m.Regenerates != uuid.Nil):
		return nil, &conversation.Invalid{Field: "user_id", Why: "system leaves no turns, and so edits none"}
	case m.Regenerates != uuid.Nil && m.Content != "":
		return nil, &conversation.Invalid{Field: "content", Why: "is that of the turn: leave it out"}
	case m.Regenerates == uuid.Nil:
		return nil, nil //nolint:nilnil // most messages ask nothing again
	}
	anew, err := s.cfg.Questions.Question(ctx, m.ThreadID, m.Regenerates)
	if errors.Is(err, conversation.ErrTurnRedacted) {
		anew, err = s.askedBefore(ctx, *m)
	}
	if err == nil {
		m.Content = anew.QuestionNeutral
	}
	return anew, err
}

// askedBefore returns the question of a message that asked a turn's question anew before that turn was redacted: the
// branch has it. Without such a branch it is conversation.ErrTurnRedacted.
func (s *Service) askedBefore(ctx context.Context, m services.ChatMessage) (*events.Question, error) {
	if err := s.branch(ctx, &m); err != nil {
		return nil, err
	}
	anew, err := s.cfg.Questions.Question(ctx, m.ThreadID, events.TurnID(m.ThreadID, m.RequestID))
	if errors.Is(err, conversation.ErrTurnNotFound) {
		err = conversation.ErrTurnRedacted
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
	made, err := s.cfg.Turns.ForkSession(ctx, conversation.ForkSession{
		SessionID: m.ThreadID, RequestID: m.RequestID, BeforeTurnID: before, IdentityID: m.UserID,
	})
	m.ThreadID = made.SessionID
	return err
}
