package decide

import (
	"encoding/json"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

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
	wordless := message.HoldsMoreThanText(q.QuestionMessages) ||
		events.HasMessages(q.QuestionMessages) && message.QuestionText(q.QuestionMessages) == ""
	if q.QuestionMessages, err = cleanMessages("question_messages", q.QuestionMessages); err != nil {
		return c, nil, err
	}
	for _, text := range []*string{
		&q.QuestionNeutral, &q.QuestionTranslated, &q.PipelineName, &q.Consultant, &q.Repository,
	} {
		*text = message.CleanText(*text)
	}
	metadata, dropped, err := p.filter(q.Metadata)
	if err != nil {
		return c, nil, err
	}
	switch {
	case q.QuestionNeutral != "":
	case q.QuestionTranslated != "":
		q.QuestionNeutral = q.QuestionTranslated
		metadata[session.FallbackKey] = json.RawMessage("true")
	case !wordless:
		return c, nil, &Invalid{"question_neutral", "is required: send the question's text, " +
			"or question_messages with something that has no text, such as an image"}
	}
	q.Metadata = session.Object(metadata)
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
	c.Metadata = session.Object(metadata)
	return c, dropped, nil
}

// noteAnswer adds to metadata what Turnledger itself says of an answer.
func noteAnswer(metadata map[string]json.RawMessage, finish string, usage *session.Usage) {
	if finish != "" {
		metadata[session.FinishKey] = events.Raw(finish)
	}
	if usage != nil {
		metadata[session.UsageKey] = events.Raw(usage)
	}
}

// normalAnswer cleans an answer, and refuses an empty one.
func normalAnswer(a *events.Answer) (err error) {
	if a.AnswerMessages, err = cleanMessages("answer_messages", a.AnswerMessages); err != nil {
		return err
	}
	a.AnswerNeutral, a.AnswerTranslated = message.CleanText(a.AnswerNeutral), message.CleanText(a.AnswerTranslated)
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
			clean := message.CleanText(**text)
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
		return nil, nil, &Invalid{"metadata", message.ErrTooDeep.Error()}
	}
	if in == nil {
		in = map[string]json.RawMessage{} // the metadata was null
	}
	dropped := session.DropMembers(in, func(k string) bool { return slices.Contains(p.MetadataKeys, k) })
	message.CleanObject(in)
	return in, dropped, nil
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

// NormalExtend does for an extension what NormalStart does for a start.
func (p Policy) NormalExtend(c Extend) (Extend, []string, error) {
	if err := ValidIDs("session_id", c.SessionID, "extension_id", c.ExtensionID); err != nil {
		return c, nil, err
	}
	other := c.QuestionNeutral
	switch c.Half {
	case events.HalfQuestion:
		other = c.AnswerNeutral
	case events.HalfAnswer:
	default:
		return c, nil, &Invalid{"half", "must be question or answer"}
	}
	switch {
	case events.ValidExtensionID(c.ExtensionID) != nil:
		return c, nil, &Invalid{"extension_id", "must not end with a space"}
	case other != "":
		return c, nil, &Invalid{"half", "is not that of the neutral text"}
	}
	var err error
	if c.Messages, err = cleanMessages("messages", c.Messages); err != nil {
		return c, nil, err
	}
	if !events.HasMessages(c.Messages) {
		return c, nil, &Invalid{"messages", "must hold at least one message"}
	}
	c.QuestionNeutral, c.AnswerNeutral = message.CleanText(c.QuestionNeutral), message.CleanText(c.AnswerNeutral)
	metadata, dropped, err := p.filter(c.Metadata)
	if err != nil {
		return c, nil, err
	}
	noteAnswer(metadata, c.FinishReason, c.Usage)
	c.Metadata = session.Object(metadata)
	return c, dropped, nil
}

// cleanMessages returns a list of chat messages as the log keeps it. field names the list for the refusal.
func cleanMessages(field string, raw json.RawMessage) (json.RawMessage, error) {
	clean, why := message.CleanList(raw)
	if why != "" {
		return nil, &Invalid{field, why}
	}
	return clean, nil
}
