package respond

import (
	"context"
	"encoding/json"
	"time"

	"github.com/turnledger/turnledger/events"
)

// recordedAnswer is an answer as the log has it.
type recordedAnswer struct {
	at       time.Time
	messages []json.RawMessage
	settings json.RawMessage
}

// recordedAnswer returns the answer that an event brought.
func (s *Service) recordedAnswer(ctx context.Context, at events.Position) (a recordedAnswer, err error) {
	e, found, err := s.cfg.Log.At(ctx, at)
	if err == nil && !found {
		err = ErrResponseNotFound
	}
	if err != nil {
		return a, err
	}
	var messages json.RawMessage
	switch texts := events.TextsOf(e.Fact); {
	case texts.Answer != nil:
		messages = texts.Answer.AnswerMessages
	case texts.Extension != nil:
		messages = texts.Extension.Messages
	}
	_ = json.Unmarshal(messages, &a.messages) // the log checked them
	a.at = e.Time
	a.settings, _ = settingsOf(e.Fact)
	return a, nil
}
