package contextbuilder

import (
	"encoding/json"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// form is how a prompt shows messages: in which language, and whether with what only items say.
type form struct {
	lang  services.Language
	items bool
}

// appendMessages appends the messages that a prompt shows for a turn.
func appendMessages(out []message.Message, t *session.Turn, f form) []message.Message {
	if q := t.Question; q != nil {
		out = f.half(out, "user", q.QuestionMessages, q.QuestionNeutral, q.QuestionTranslated)
	}
	if a := t.Answer; a != nil && t.Status == session.Finalized {
		out = f.half(out, "assistant", a.AnswerMessages, a.AnswerNeutral, a.AnswerTranslated)
	}
	return out
}

func (f form) half(
	out []message.Message, role string, messages json.RawMessage, neutral, translated string,
) []message.Message {
	if list := message.ParseList(messages); len(list) > 0 {
		for _, m := range message.Spoken(list, f.items) {
			if f.lang == services.Translated {
				m = m.Translated()
			}
			out = append(out, m)
		}
		return out
	}
	text := neutral
	if f.lang == services.Translated && translated != "" {
		text = translated
	}
	if text == "" {
		return out // its items were deleted, and endpoints refuse a message without content
	}
	return append(out, message.New(role, text))
}
