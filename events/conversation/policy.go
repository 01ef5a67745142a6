package conversation

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
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
	wordless := message.HoldsMoreThanText(q.QuestionMessages) ||
		events.HasMessages(q.QuestionMessages) && questionText(q.QuestionMessages) == ""
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
	dropped := dropOthers(in, func(k string) bool { return slices.Contains(p.MetadataKeys, k) })
	message.CleanObject(in)
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

// Metadata returns the metadata that views may show. Events of other publishers may hold any keys. FallbackKey,
// FinishKey and UsageKey may always be shown with the values that Turnledger writes.
func (r Rules) Metadata(raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if r.MetadataKeys == nil || len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return raw
	}
	if len(dropOthers(m, func(k string) bool { return slices.Contains(r.MetadataKeys, k) || isOwn(k, m[k]) })) == 0 {
		return raw // unchanged
	}
	return object(m)
}

// finishWord matches why an answer ended, in the words of a model's endpoint.
var finishWord = regexp.MustCompile(`^"[a-z_]{1,40}"$`)

// isOwn reports whether a member is one that Turnledger itself writes.
func isOwn(key string, value json.RawMessage) bool {
	switch v := string(value); key {
	case FallbackKey:
		return v == "true"
	case FinishKey:
		return finishWord.MatchString(v)
	case UsageKey:
		_, ok := usageOf(value)
		return ok
	}
	return false
}

// UsageKey is the metadata key under which the tokens stand that a model used for the answer.
const UsageKey = "usage"

// Usage counts the tokens that a model used. Cached are among Input, and Reasoning among Output.
type Usage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_tokens,omitempty"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_tokens,omitempty"`
}

// Plus returns the sum of two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Cached + v.Cached, u.Output + v.Output, u.Reasoning + v.Reasoning}
}

// UsageOf returns the usage that metadata tells, or nil if it tells none.
func UsageOf(metadata json.RawMessage) *Usage {
	var m map[string]json.RawMessage
	if json.Unmarshal(metadata, &m) != nil {
		return nil
	}
	u, ok := usageOf(m[UsageKey])
	if !ok {
		return nil
	}
	return &u
}

// usageOf reads a usage; numbers that are no counts, and other members, make it none.
func usageOf(raw json.RawMessage) (u Usage, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if dec.Decode(&u) != nil || len(raw) == 0 || raw[0] != '{' {
		return u, false
	}
	return u, min(u.Input, u.Cached, u.Output, u.Reasoning) >= 0
}

// dropOthers removes the members that are not allowed, and returns their keys in order.
func dropOthers(m map[string]json.RawMessage, allowed func(key string) bool) (dropped []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !allowed(k) {
			delete(m, k)
			dropped = append(dropped, k)
		}
	}
	return dropped
}

// Allowed returns what views may show of a question by the state's rules.
func (s *State) Allowed(q *events.Question) *events.Question { return s.rules().Question(q) }

// Question returns what views may show of a question; the fact stays as it is.
func (r Rules) Question(q *events.Question) *events.Question {
	allowed := r.Metadata(q.Metadata)
	if len(allowed) == len(q.Metadata) {
		return q
	}
	own := *q
	own.Metadata = allowed
	return &own
}

// Fill adds to a turn the texts of facts, in their order, that views may show. A nil fact adds none.
func (r Rules) Fill(t *Turn, facts ...events.Fact) {
	mine := false
	for _, f := range facts {
		texts := events.TextsOf(f)
		if texts.Question != nil {
			t.Question = r.Question(texts.Question)
		}
		if texts.Answer != nil {
			t.Answer, t.AnswerMetadata, mine = texts.Answer, r.Metadata(texts.Metadata), false
		}
		if x := texts.Extension; x != nil {
			r.extend(t, x, texts.Metadata, mine)
			mine = mine || x.Half == events.HalfAnswer
		}
	}
}

// Extend adds to the question of a turn what an extension brings, for a slim state whose caller keeps the questions of
// pending turns.
func (s *State) Extend(t *Turn, f events.Fact) { s.rules().Fill(t, f) }

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
	c.Metadata = object(metadata)
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

func encode(v any) json.RawMessage {
	raw, _ := events.JSON(v) // never fails: v came from JSON
	return raw
}
