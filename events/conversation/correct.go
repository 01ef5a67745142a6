package conversation

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Correct asks to replace a turn. A nil text stays as it is.
type Correct struct {
	SessionID, RequestID                string
	TurnID                              uuid.UUID
	QuestionNeutral, QuestionTranslated *string
	AnswerNeutral, AnswerTranslated     *string
}

// CorrectRefused decides a correction as far as that is possible without texts. It returns the decision if the log has
// the correction already, or refuses it. Otherwise ok is false, and DecideCorrect must decide, which needs the texts of
// the old turn.
func (s *State) CorrectRefused(c Correct) (d Decision, ok bool) {
	if s.Erased != 0 {
		return Decision{Err: ErrSessionErased}, true
	}
	if t := s.Turn(events.TurnID(c.SessionID, c.RequestID)); t != nil {
		if t.Corrects() && t.Replaces == c.TurnID {
			return Decision{Turn: t, RestsOn: t.Started}, true
		}
		return Decision{Err: ErrRequestIDInUse}, true
	}
	refusal := uncorrectable(s.Turn(c.TurnID))
	if refusal == nil {
		return Decision{}, false
	}
	if refusal.Code == CodeTurnReplaced {
		refusal = s.replacedRefusal(c.TurnID)
	}
	return Decision{Err: refusal}, true
}

// replacedRefusal returns ErrTurnReplaced with the turn's current version.
func (s *State) replacedRefusal(turn uuid.UUID) *Refusal {
	chain := s.Chain(s.Turn(turn))
	current := chain[len(chain)-1]
	r := *ErrTurnReplaced
	r.Current = &Version{current.ID, current.Version}
	return &r
}

// DecideCorrect decides a correction; old is the turn with its texts.
func (s *State) DecideCorrect(c Correct, old *Turn) Decision {
	if d, ok := s.CorrectRefused(c); ok {
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
	others, fallbackMark := without(q.Metadata, FallbackKey)
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
		q.Metadata, _ = without(q.Metadata, FinishKey) // both belonged to the old answer
		q.Metadata, _ = without(q.Metadata, UsageKey)
	}
	if worded || c.QuestionTranslated != nil {
		to := words{"user", q.QuestionNeutral, q.QuestionTranslated}
		q.QuestionMessages = to.correct(q.QuestionMessages, worded)
	}
}

// without returns metadata without one of its members, and the value of that member.
func without(metadata json.RawMessage, key string) (others json.RawMessage, value string) {
	var m map[string]json.RawMessage
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || m[key] == nil {
		return metadata, ""
	}
	value = string(m[key])
	delete(m, key)
	return object(m), value
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
		to := words{"assistant", a.AnswerNeutral, a.AnswerTranslated}
		a.AnswerMessages = to.correct(a.AnswerMessages, worded)
	}
}

// uncorrectable returns why a turn can't be corrected, or nil if it can.
func uncorrectable(t *Turn) *Refusal {
	if t == nil {
		return ErrTurnNotFound
	}
	return [...]*Refusal{Pending: ErrTurnPending, Redacted: ErrTurnRedacted, Replaced: ErrTurnReplaced}[t.Status]
}

// words are the corrected texts of one half of a turn, and the role of its speaker.
type words struct{ role, neutral, translated string }

// halfMessages are the messages of one half of a turn while they are corrected. A prompt shows these messages in place
// of the half's texts. So they must hold the corrected text, and no earlier words of the speaker. Calls and results of
// tools, system messages and images stay.
type halfMessages struct {
	role string
	list []map[string]json.RawMessage
}

// correct puts the words into the messages of the half. If worded is false, only the translation was corrected. Then
// the words stay, but if several messages have words, they become one message, since there is only one translation.
// correct returns nil if the texts alone are enough.
func (to words) correct(raw json.RawMessage, worded bool) json.RawMessage {
	s := halfMessages{role: to.role}
	if !events.HasMessages(raw) || json.Unmarshal(raw, &s.list) != nil {
		return nil
	}
	if !worded && !slices.ContainsFunc(s.list, s.isSpeakers) {
		return raw // the speaker has no message
	}
	worded = worded || s.withWords() > 1 && to.neutral != ""
	at := s.textIndex()
	for i, m := range s.list {
		switch {
		case !s.isSpeakers(m):
		case worded && i != at:
			s.list[i] = replaceText(m, nil)
		case worded:
			s.list[i] = replaceText(m, &to.neutral)
		default:
			delete(m, "translated")
		}
	}
	if to.translated != "" && to.translated != to.neutral {
		s.list[at]["translated"] = encode(to.translated)
	}
	s.list = slices.DeleteFunc(s.list, func(m map[string]json.RawMessage) bool { return m == nil })
	if len(s.list) == 1 && worded && isPlain(s.list[0]) {
		return nil
	}
	return encode(s.list)
}

// isSpeakers reports whether a message is the speaker's.
func (s *halfMessages) isSpeakers(m map[string]json.RawMessage) bool {
	return text(m["role"]) == s.role
}

// withWords returns how many messages of the speaker have words.
func (s *halfMessages) withWords() (n int) {
	for _, m := range s.list {
		if s.isSpeakers(m) && hasWords(m) {
			n++
		}
	}
	return n
}

// textIndex returns the index of the message that is to hold the text: the speaker's last message with
// words, or else the speaker's last message, or else a new message at the end.
func (s *halfMessages) textIndex() int {
	at := -1
	for i, m := range s.list {
		if s.isSpeakers(m) && (at < 0 || hasWords(m) || !hasWords(s.list[at])) {
			at = i
		}
	}
	if at < 0 {
		s.list = append(s.list, map[string]json.RawMessage{"role": encode(s.role)})
		at = len(s.list) - 1
	}
	return at
}

func hasWords(m map[string]json.RawMessage) bool {
	return text(m["content"]) != "" || slices.ContainsFunc(partsOf(m["content"]), isText)
}

// replaceText returns a message with its text replaced by words, or removed if words is nil. It returns nil if nothing
// is left. It keeps only the members that it knows, since any other member may repeat the old text.
func replaceText(m map[string]json.RawMessage, words *string) map[string]json.RawMessage {
	parts := slices.DeleteFunc(partsOf(m["content"]), func(p map[string]json.RawMessage) bool {
		return !slices.Contains(textless, text(p["type"]))
	})
	own := map[string]json.RawMessage{"role": m["role"], "content": json.RawMessage("null")}
	switch {
	case words != nil && len(parts) == 0:
		own["content"] = encode(*words)
	case words != nil:
		first := map[string]json.RawMessage{"type": encode("text"), "text": encode(*words)}
		own["content"] = encode(append([]map[string]json.RawMessage{first}, parts...))
	case len(parts) > 0:
		own["content"] = encode(parts)
	}
	calls := false
	for _, name := range []string{"name", "tool_calls", "function_call"} {
		if v, ok := m[name]; ok {
			own[name], calls = v, calls || name != "name"
		}
	}
	if words == nil && len(parts) == 0 && !calls {
		return nil
	}
	return own
}

// textless are the types of the parts of a content that stay when its text is replaced: images, files, and
// calls and results of tools, in the form of either vendor.
var textless = []string{
	"image", "image_url", "input_image", "file", "input_file", "document", "tool_use", "tool_result",
}

func isText(p map[string]json.RawMessage) bool { return text(p["text"]) != "" }

func isPlain(m map[string]json.RawMessage) bool {
	_, translated := m["translated"]
	return text(m["content"]) != "" && (len(m) == 2 || len(m) == 3 && translated)
}

func partsOf(content json.RawMessage) (parts []map[string]json.RawMessage) {
	_ = json.Unmarshal(content, &parts) // a string has none
	return parts
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // if raw is no string, s stays empty
	return s
}
