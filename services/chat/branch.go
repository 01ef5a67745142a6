package chat

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// branch forks the thread right before the turn that a message edits or regenerates, with the message's request id, so
// that the same message again goes to the same branch. The message then is one of the branch. The question that is to
// be asked again is returned.
func (s *Service) branch(ctx context.Context, m *services.ChatMessage) (*events.Question, error) {
	before := m.Edits
	switch {
	case m.Edits != uuid.Nil && m.Regenerates != uuid.Nil:
		return nil, &conversation.Invalid{Field: "regenerates_turn_id", Why: "stands beside edits_turn_id: send one"}
	case m.UserID == SystemUser && (m.Edits != uuid.Nil || m.Regenerates != uuid.Nil):
		return nil, &conversation.Invalid{Field: "user_id", Why: "system leaves no turns, and so edits none"}
	case m.Regenerates != uuid.Nil && m.Content != "":
		return nil, &conversation.Invalid{Field: "content", Why: "is that of the turn: leave it out"}
	case m.Regenerates != uuid.Nil:
		before = m.Regenerates
	case m.Edits == uuid.Nil:
		return nil, nil //nolint:nilnil // most messages ask nothing again
	}
	var anew *events.Question
	if m.Regenerates != uuid.Nil {
		var err error
		if anew, err = s.cfg.Questions.Question(ctx, m.ThreadID, before); err != nil {
			return nil, err
		}
		m.Content = anew.QuestionNeutral
	}
	made, err := s.cfg.Turns.ForkSession(ctx, conversation.ForkSession{
		SessionID: m.ThreadID, RequestID: m.RequestID, BeforeTurnID: before,
	})
	m.ThreadID = made.SessionID
	return anew, err
}
