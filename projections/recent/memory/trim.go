package memory

import (
	"bytes"
	"encoding/json"
	"unique"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// trim copies the halves that an event brought to its turn, so that the turn does not keep the whole fact in memory. An
// extension makes halves of its own.
func trim(c session.Change, turns []*session.Turn, f events.Fact) {
	if c.Kind.Group() != session.GroupText {
		return
	}
	texts, previous := events.TextsOf(f), before(turns, c.Turn)
	if texts.Question != nil {
		trimQuestion(c.Turn, previous)
	}
	if texts.Answer != nil {
		trimAnswer(c.Turn, previous)
	}
}

// trimQuestion and trimAnswer store values once that are mostly the same from turn to turn.
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
