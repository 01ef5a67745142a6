package memory

import (
	"bytes"
	"encoding/json"
	"unique"

	"github.com/turnledger/turnledger/events/session"
)

// trimQuestion and trimAnswer copy a half that was just folded, so that the turn does not keep the whole fact in
// memory. Values that are mostly the same from turn to turn are stored once.
func trimQuestion(t, previous *session.Turn) {
	q := *t.Question
	q.PipelineName, q.Consultant, q.Repository = once(q.PipelineName), once(q.Consultant), once(q.Repository)
	if q.QuestionTranslated == q.QuestionNeutral {
		q.QuestionTranslated = q.QuestionNeutral
	}
	if previous != nil {
		q.Metadata = same(q.Metadata, previous.Question.Metadata)
	}
	t.Question = &q
}

func trimAnswer(t, previous *session.Turn) {
	a := *t.Answer
	if a.AnswerTranslated == a.AnswerNeutral {
		a.AnswerTranslated = a.AnswerNeutral
	}
	if previous != nil {
		t.AnswerMetadata = same(t.AnswerMetadata, previous.AnswerMetadata)
	}
	t.Answer = &a
}

// once returns a shared copy of a text, for as long as any caller uses it.
func once(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

func same(raw, other json.RawMessage) json.RawMessage {
	if bytes.Equal(raw, other) {
		return other
	}
	return raw
}
