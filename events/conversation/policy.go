package conversation

import (
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// FallbackKey is the metadata key that marks a neutral question as a copy of the translated one.
const FallbackKey = "question_neutral_is_fallback"

// FinishKey is the metadata key that says why an incomplete answer ended: in OpenAI's words (length, content_filter),
// or interrupted.
const FinishKey = "finish_reason"

// Policy says what Turnledger accepts into the log.
type Policy struct {
	// MetadataKeys are the allowed metadata keys. Other keys are dropped, and the caller is told which.
	MetadataKeys []string
}

// NormalStart returns a start in the form that the log may hold: with a fallback question, allowed metadata and no
// base64 images. It also returns the metadata keys that were dropped. The error is Invalid if the command is wrong
// whatever the session holds. The caller's values are not edited.
func (p Policy) NormalStart(c Start) (Start, []string, error) {
	err := ValidIDs("session_id", c.SessionID, "request_id", c.RequestID)
	if err == nil && c.IdentityID != "" {
		err = ValidIDs("identity_id", c.IdentityID)
	}
	if err != nil {
		return c, nil, err
	}
	q := &c.Question
	// Checked before images become text. Messages of others than the user, such as a greeting, may open a turn.
	wordless := holdsNonText(q.QuestionMessages) ||
		events.HasMessages(q.QuestionMessages) && questionText(q.QuestionMessages) == ""
	if q.QuestionMessages, err = cleanMessages("question_messages", q.QuestionMessages); err != nil {
		return c, nil, err
	}
	for _, text := range []*string{
		&q.QuestionNeutral, &q.QuestionTranslated, &q.PipelineName, &q.Consultant, &q.Repository,
	} {
		*text = cleanText(*text)
	}
	metadata, dropped, err := p.filter(q.Metadata)
	if err != nil {
		return c, nil, err
	}
	switch {
	case q.QuestionNeutral != "":
	case q.QuestionTranslated != "":
		q.QuestionNeutral = q.QuestionTranslated
		metadata[FallbackKey] = json.RawMessage("true")
	case !wordless:
		return c, nil, &Invalid{"question_neutral", "is required: send the question's text, " +
			"or question_messages with something that has no text, such as an image"}
	}
	q.Metadata = object(metadata)
	if c.Answer != nil {
		a := *c.Answer
		if err := normalAnswer(&a); err != nil {
			return c, nil, err
		}
		c.Answer = &a
	}
	return c, dropped, nil
}

// NormalFinalize does for a finalize what NormalStart does for a start.
func (p Policy) NormalFinalize(c Finalize) (Finalize, []string, error) {
	err := ValidIDs("session_id", c.SessionID)
	if err == nil && c.RequestID != "" {
		err = ValidIDs("request_id", c.RequestID)
	}
	if err != nil {
		return c, nil, err
	}
	if err := normalAnswer(&c.Answer); err != nil {
		return c, nil, err
	}
	metadata, dropped, err := p.filter(c.Metadata)
	if err != nil {
		return c, nil, err
	}
	noteAnswer(metadata, c.FinishReason, c.Usage)
	c.Metadata = object(metadata)
	return c, dropped, nil
}

// noteAnswer adds to metadata what Turnledger itself says of an answer.
func noteAnswer(metadata map[string]json.RawMessage, finish string, usage *Usage) {
	if finish != "" {
		metadata[FinishKey] = encode(finish)
	}
	if usage != nil {
		metadata[UsageKey] = encode(usage)
	}
}

// normalAnswer cleans an answer, and refuses an empty one.
func normalAnswer(a *events.Answer) (err error) {
	if a.AnswerMessages, err = cleanMessages("answer_messages", a.AnswerMessages); err != nil {
		return err
	}
	a.AnswerNeutral, a.AnswerTranslated = cleanText(a.AnswerNeutral), cleanText(a.AnswerTranslated)
	if a.AnswerNeutral == "" && !events.HasMessages(a.AnswerMessages) {
		return &Invalid{"answer_neutral", "is required: send the answer's text, " +
			"or answer_messages with at least one message"}
	}
	return nil
}

// NormalCorrect checks a correction by the rules that need no state, and returns it with clean texts.
func (p Policy) NormalCorrect(c Correct) (Correct, error) {
	if err := ValidIDs("session_id", c.SessionID, "request_id", c.RequestID); err != nil {
		return c, err
	}
	if c.QuestionNeutral == nil && c.QuestionTranslated == nil && c.AnswerNeutral == nil && c.AnswerTranslated == nil {
		return c, &Invalid{"answer_neutral", "or another text is required: send what the correction changes"}
	}
	if c.QuestionNeutral != nil && *c.QuestionNeutral == "" {
		return c, &Invalid{"question_neutral", "can't become empty: redact the turn instead"}
	}
	if c.AnswerNeutral != nil && *c.AnswerNeutral == "" {
		return c, &Invalid{"answer_neutral", "can't become empty: redact the turn instead"}
	}
	for _, text := range []**string{&c.QuestionNeutral, &c.QuestionTranslated, &c.AnswerNeutral, &c.AnswerTranslated} {
		if *text != nil {
			clean := cleanText(**text)
			*text = &clean
		}
	}
	return c, nil
}

// filter keeps the allowed members of a metadata object.
func (p Policy) filter(raw json.RawMessage) (map[string]json.RawMessage, []string, error) {
	in := map[string]json.RawMessage{}
	if len(raw) > 0 && json.Unmarshal(raw, &in) != nil {
		return nil, nil, &Invalid{"metadata", "must be an object"}
	}
	if events.TooDeep(raw) {
		return nil, nil, &Invalid{"metadata", tooDeep}
	}
	if in == nil {
		in = map[string]json.RawMessage{} // the metadata was null
	}
	dropped := dropOthers(in, func(k string) bool { return slices.Contains(p.MetadataKeys, k) })
	cleanObject(in)
	return in, dropped, nil
}

func object(m map[string]json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return nil
	}
	return encode(m)
}

// ValidIDs returns an Invalid for the first id with a wrong form. pairs holds fields and their ids in turn.
func ValidIDs(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if err := events.ValidID(pair[1]); err != nil {
			return &Invalid{pair[0], err.Error()}
		}
	}
	return nil
}
