package memory

import (
	"bytes"
	"encoding/json"
	"unique"

	"github.com/turnledger/turnledger/events/conversation"
)

// trimQuestion and trimAnswer make a half that has just been folded hold no more
// memory than its texts: it becomes a copy of its own, since a pointer into the fact
// would keep the whole fact, and what is mostly the same from turn to turn is held
// once.
func trimQuestion(t, previous *conversation.Turn) {
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

func trimAnswer(t, previous *conversation.Turn) {
	a := *t.Answer
	if a.AnswerTranslated == a.AnswerNeutral {
		a.AnswerTranslated = a.AnswerNeutral
	}
	if previous != nil {
		t.AnswerMetadata = same(t.AnswerMetadata, previous.AnswerMetadata)
	}
	t.Answer = &a
}

// once returns one copy of a text for all who ask for it, for as long as it is used.
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
