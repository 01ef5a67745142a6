package decide

import (
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

// Correct asks to replace a turn. A nil text stays as it is.
type Correct struct {
	SessionID, RequestID                string
	TurnID                              uuid.UUID
	QuestionNeutral, QuestionTranslated *string
	AnswerNeutral, AnswerTranslated     *string
}

// Refused decides a correction as far as that is possible without texts. It returns the decision if the log has
// the correction already, or refuses it. Otherwise ok is false, and On must decide, which needs the texts of
// the old turn.
func (c Correct) Refused(s *session.State) (d Decision, ok bool) {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}, true
	}
	if t := s.Turn(events.TurnID(c.SessionID, c.RequestID)); t != nil {
		if t.Corrects() && t.Replaces == c.TurnID {
			return Decision{Turn: t, RestsOn: t.Started}, true
		}
		return Decision{Err: ErrRequestIDInUse}, true
	}
	code := session.Unanswered(s.Turn(c.TurnID))
	if code == "" {
		return Decision{}, false
	}
	return Decision{Err: refusalOf(s, c.TurnID, code)}, true
}

// On decides a correction; old is the turn with its texts.
func (c Correct) On(s *session.State, old *session.Turn) Decision {
	if d, ok := c.Refused(s); ok {
		return d
	}
	f := &events.TurnCorrected{
		TurnID: events.TurnID(c.SessionID, c.RequestID), SessionID: c.SessionID, RequestID: c.RequestID,
		ReplacesTurnID: c.TurnID, Question: *old.Question, Answer: *old.Answer,
	}
	f.Metadata = old.Metadata()
	c.question(&f.Question)
	c.answer(&f.Answer)
	// A prune may have left a half empty.
	switch {
	case f.QuestionNeutral == "" && !events.HasMessages(f.QuestionMessages):
		return Decision{Err: &Invalid{"question_neutral", "is required: nothing is left of the turn's question"}}
	case f.AnswerNeutral == "" && !events.HasMessages(f.AnswerMessages):
		return Decision{Err: &Invalid{"answer_neutral", "is required: nothing is left of the turn's answer"}}
	}
	return Decision{Facts: []events.Fact{f}, Expect: true}
}

// question applies the correction to a question. If the neutral text was only a copy of the translated one, it changes
// with it, unless it is corrected itself.
func (c Correct) question(q *events.Question) {
	others, fallbackMark := session.WithoutMember(q.Metadata, session.FallbackKey)
	fallback := fallbackMark == "true"
	worded := c.QuestionNeutral != nil
	if c.QuestionTranslated != nil {
		q.QuestionTranslated = *c.QuestionTranslated
		if fallback && q.QuestionTranslated != "" {
			q.QuestionNeutral, worded = q.QuestionTranslated, true
		}
	}
	if c.QuestionNeutral != nil {
		q.QuestionNeutral = *c.QuestionNeutral
		if fallback {
			q.Metadata = others
		}
	}
	if c.AnswerNeutral != nil {
		q.Metadata, _ = session.WithoutMember(q.Metadata, session.FinishKey) // both belonged to the old answer
		q.Metadata, _ = session.WithoutMember(q.Metadata, session.UsageKey)
	}
	if worded || c.QuestionTranslated != nil {
		to := message.Correction{Role: message.User, Neutral: q.QuestionNeutral, Translated: q.QuestionTranslated}
		q.QuestionMessages = to.Of(q.QuestionMessages, worded)
	}
}

// answer applies the correction to an answer. If the translation was only a copy of the neutral text, it changes with
// it.
func (c Correct) answer(a *events.Answer) {
	worded := c.AnswerNeutral != nil
	if worded {
		a.AnswerNeutral = *c.AnswerNeutral
		if a.AnswerTranslatedIsFallback {
			a.AnswerTranslated = *c.AnswerNeutral
		}
	}
	if c.AnswerTranslated != nil {
		a.AnswerTranslated, a.AnswerTranslatedIsFallback = *c.AnswerTranslated, false
	}
	if worded || c.AnswerTranslated != nil {
		to := message.Correction{Role: message.Assistant, Neutral: a.AnswerNeutral, Translated: a.AnswerTranslated}
		a.AnswerMessages = to.Of(a.AnswerMessages, worded)
	}
}
