package events

import (
	"cmp"
	"encoding/json"
	"hash/maphash"

	"github.com/google/uuid"
)

// Question is the first half of a turn. QuestionMessages, if present, is a JSON array of chat messages in the OpenAI
// form, kept as it came. Metadata is a JSON object of allowed keys.
type Question struct {
	PipelineName       string          `json:"pipeline_name,omitempty"`
	Consultant         string          `json:"consultant,omitempty"`
	Repository         string          `json:"repository,omitempty"`
	TranslateChat      bool            `json:"translate_chat,omitempty"`
	QuestionNeutral    string          `json:"question_neutral"`
	QuestionTranslated string          `json:"question_translated,omitempty"`
	QuestionMessages   json.RawMessage `json:"question_messages,omitempty"`
	Metadata           json.RawMessage `json:"metadata,omitempty"`
}

// Answer is the second half of a turn. Its fields have the same forms as those of Question.
type Answer struct {
	AnswerNeutral              string          `json:"answer_neutral"`
	AnswerTranslated           string          `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool            `json:"answer_translated_is_fallback,omitempty"`
	AnswerMessages             json.RawMessage `json:"answer_messages,omitempty"`
}

// Digest is the same for equal questions, whatever their metadata, and in this process alone.
func (q *Question) Digest() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	flag := byte(0)
	if q.TranslateChat {
		flag = 1
	}
	_ = h.WriteByte(flag)
	for _, s := range []string{q.PipelineName, q.Consultant, q.Repository, q.QuestionNeutral, q.QuestionTranslated} {
		hashText(&h, s)
	}
	hashJSON(&h, q.QuestionMessages)
	return h.Sum64()
}

// Digest is the same for equal answers, and in this process alone.
func (a *Answer) Digest() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	flag := byte(0)
	if a.AnswerTranslatedIsFallback {
		flag = 1
	}
	_ = h.WriteByte(flag)
	hashText(&h, a.AnswerNeutral)
	hashText(&h, a.AnswerTranslated)
	hashJSON(&h, a.AnswerMessages)
	return h.Sum64()
}

// hashText adds a text to a hash, and where it ends.
func hashText(h *maphash.Hash, s string) {
	_, _ = h.WriteString(s) // never fails, nor does WriteByte
	_ = h.WriteByte(0xff)   // in no UTF-8
}

// hashJSON adds JSON to a hash without the white space between its tokens.
func hashJSON(h *maphash.Hash, raw json.RawMessage) {
	quoted, from := false, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			_, _ = h.Write(raw[from:i])
			from = i + 1
		}
	}
	_, _ = h.Write(raw[from:])
	_ = h.WriteByte(0xff)
}

func (q Question) problem() Problem {
	if q.QuestionNeutral == "" && !HasMessages(q.QuestionMessages) {
		return ProblemEmptyQuestion
	}
	return cmp.Or(badMessages(q.QuestionMessages), badObject(q.Metadata))
}

func (a Answer) problem() Problem {
	if a.AnswerNeutral == "" && !HasMessages(a.AnswerMessages) {
		return ProblemEmptyAnswer
	}
	return badMessages(a.AnswerMessages)
}

// TurnStarted says: a request opened a turn with its question. Settings, where there are any, are a JSON object: what a
// model was asked for with the event's messages, such as instructions and tools. They hold texts, and no view shows
// them.
type TurnStarted struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	RequestID string    `json:"request_id"`
	Question
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Type implements Fact.
func (f *TurnStarted) Type() string { return TypeTurnStarted }

// EventID implements Fact.
func (f *TurnStarted) EventID() string { return f.TurnID.String() + ".started" }

// Subject implements Fact.
func (f *TurnStarted) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnStarted) names() Names {
	return Names{TurnID: f.TurnID, SessionID: f.SessionID, RequestID: f.RequestID}
}
func (f *TurnStarted) texts() Texts          { return Texts{Question: &f.Question, Settings: f.Settings} }
func (f *TurnStarted) withdraws() Withdrawal { return WithdrawsNothing }
func (f *TurnStarted) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), badTurn(f.TurnID, f.SessionID, f.RequestID), f.problem(),
		badObject(f.Settings))
}

// TurnFinalized says: the turn has its answer. Members of Metadata override those of the start. Settings are as in
// TurnStarted, or what the model said of its answer.
type TurnFinalized struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	Answer
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Type implements Fact.
func (f *TurnFinalized) Type() string { return TypeTurnFinalized }

// EventID implements Fact.
func (f *TurnFinalized) EventID() string { return f.TurnID.String() + ".finalized" }

// Subject implements Fact.
func (f *TurnFinalized) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnFinalized) names() Names { return Names{TurnID: f.TurnID, SessionID: f.SessionID} }
func (f *TurnFinalized) texts() Texts {
	return Texts{Answer: &f.Answer, Metadata: f.Metadata, Settings: f.Settings}
}
func (f *TurnFinalized) withdraws() Withdrawal { return WithdrawsNothing }
func (f *TurnFinalized) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), nilTurn(f.TurnID), f.problem(), badObject(f.Metadata), badObject(f.Settings))
}

// TurnRecorded says: a request opened a turn with its question and its answer, at once. It states what a TurnStarted
// and a TurnFinalized state, and has the id of a start, so that a copy of the same request is the same turn, whole or
// not. It never answers a turn that stands.
type TurnRecorded struct {
	TurnID    uuid.UUID `json:"turn_id"`
	SessionID string    `json:"session_id"`
	RequestID string    `json:"request_id"`
	Question
	Answer
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Type implements Fact.
func (f *TurnRecorded) Type() string { return TypeTurnRecorded }

// EventID implements Fact.
func (f *TurnRecorded) EventID() string { return f.TurnID.String() + ".started" }

// Subject implements Fact.
func (f *TurnRecorded) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnRecorded) names() Names {
	return Names{TurnID: f.TurnID, SessionID: f.SessionID, RequestID: f.RequestID}
}
func (f *TurnRecorded) texts() Texts {
	return Texts{Question: &f.Question, Answer: &f.Answer, Settings: f.Settings}
}
func (f *TurnRecorded) withdraws() Withdrawal { return WithdrawsNothing }
func (f *TurnRecorded) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), badTurn(f.TurnID, f.SessionID, f.RequestID),
		f.Question.problem(), f.Answer.problem(), badObject(f.Settings))
}

// TurnCorrected says: a whole new turn replaces ReplacesTurnID, in its place.
type TurnCorrected struct {
	TurnID         uuid.UUID `json:"turn_id"`
	SessionID      string    `json:"session_id"`
	RequestID      string    `json:"request_id"`
	ReplacesTurnID uuid.UUID `json:"replaces_turn_id"`
	Question
	Answer
}

// Type implements Fact.
func (f *TurnCorrected) Type() string { return TypeTurnCorrected }

// EventID implements Fact.
func (f *TurnCorrected) EventID() string { return f.TurnID.String() + ".corrected" }

// Subject implements Fact.
func (f *TurnCorrected) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnCorrected) names() Names {
	return Names{TurnID: f.TurnID, SessionID: f.SessionID, RequestID: f.RequestID, ReplacesTurnID: f.ReplacesTurnID}
}
func (f *TurnCorrected) texts() Texts          { return Texts{Question: &f.Question, Answer: &f.Answer} }
func (f *TurnCorrected) withdraws() Withdrawal { return WithdrawsVersion }
func (f *TurnCorrected) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), badTurn(f.TurnID, f.SessionID, f.RequestID),
		nilTurn(f.ReplacesTurnID), f.Question.problem(), f.Answer.problem())
}

// Half is a half of a turn.
type Half string

// The halves.
const (
	HalfQuestion Half = "question"
	HalfAnswer   Half = "answer"
)

// Extension is what is appended to a half of a turn. Messages, at least one, have the form of Question's. A neutral
// text, where there is one, takes the place of the half's: the last text of its speaker.
type Extension struct {
	Half            Half            `json:"half"`
	Messages        json.RawMessage `json:"messages"`
	QuestionNeutral string          `json:"question_neutral,omitempty"`
	AnswerNeutral   string          `json:"answer_neutral,omitempty"`
}

func (x Extension) problem() Problem {
	other := x.QuestionNeutral
	if x.Half == HalfQuestion {
		other = x.AnswerNeutral
	}
	bad := x.Half != HalfQuestion && x.Half != HalfAnswer || other != ""
	return cmp.Or(problemIf(bad, ProblemExtension), badMessages(x.Messages),
		problemIf(!HasMessages(x.Messages), ProblemMessages))
}

// TurnExtended says: a half of the turn goes on. Members of Metadata override those that the turn has.
type TurnExtended struct {
	TurnID      uuid.UUID `json:"turn_id"`
	SessionID   string    `json:"session_id"`
	ExtensionID string    `json:"extension_id"`
	Extension
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Settings are as in TurnFinalized.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Type implements Fact.
func (f *TurnExtended) Type() string { return TypeTurnExtended }

// EventID implements Fact.
func (f *TurnExtended) EventID() string { return f.TurnID.String() + ".extended." + f.ExtensionID }

// Subject implements Fact.
func (f *TurnExtended) Subject() string { return SessionSubject(f.SessionID) }

func (f *TurnExtended) names() Names {
	return Names{TurnID: f.TurnID, SessionID: f.SessionID, ExtensionID: f.ExtensionID}
}
func (f *TurnExtended) texts() Texts {
	return Texts{Extension: &f.Extension, Metadata: f.Metadata, Settings: f.Settings}
}
func (f *TurnExtended) withdraws() Withdrawal { return WithdrawsNothing }
func (f *TurnExtended) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), nilTurn(f.TurnID),
		problemIf(ValidExtensionID(f.ExtensionID) != nil, ProblemID), f.problem(), badObject(f.Metadata),
		badObject(f.Settings))
}
