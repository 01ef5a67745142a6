package v1

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
)

// turnJSON is a turn in the form of docs/contract.md#a-turn. All members are always present; a missing value is null,
// false or empty.
type turnJSON struct {
	TurnID                     uuid.UUID       `json:"turn_id"`
	SessionID                  string          `json:"session_id"`
	IdentityID                 *string         `json:"identity_id"`
	RequestID                  string          `json:"request_id"`
	Status                     string          `json:"status" enum:"pending,finalized,redacted,replaced"`
	Position                   events.Position `json:"position" doc:"Place in the log; pass it on as min_position" example:"0:42"`
	CreatedAt                  time.Time       `json:"created_at"`
	FinalizedAt                *time.Time      `json:"finalized_at"`
	PipelineName               *string         `json:"pipeline_name"`
	Consultant                 *string         `json:"consultant"`
	Repository                 *string         `json:"repository"`
	TranslateChat              bool            `json:"translate_chat"`
	QuestionNeutral            *string         `json:"question_neutral"`
	QuestionTranslated         *string         `json:"question_translated"`
	AnswerNeutral              *string         `json:"answer_neutral"`
	AnswerTranslated           *string         `json:"answer_translated"`
	AnswerTranslatedIsFallback bool            `json:"answer_translated_is_fallback"`
	QuestionMessages           rawList         `json:"question_messages"`
	AnswerMessages             rawList         `json:"answer_messages"`
	Metadata                   rawObject       `json:"metadata"`
	RecordVersion              int             `json:"record_version" doc:"1 for a first turn, one higher with each correction"`
	ReplacedByTurnID           *string         `json:"replaced_by_turn_id"`
	DeletedAt                  *time.Time      `json:"deleted_at"`
	Inherited                  bool            `json:"inherited" doc:"A branch shares the turn: session_id is that of its origin, where it is written to"`
	Duplicate                  bool            `json:"duplicate" doc:"The log had it already; what came first stands"`
	DroppedMetadata            []string        `json:"dropped_metadata" nullable:"false" doc:"Keys that are not on the allowlist and were not kept"`
	// stood: the call did not create the turn.
	existed bool
}

func (t *turnJSON) existedBefore() bool { return t.existed }

// newTurnJSON converts a turn. The result points into t, which must not change any more.
func newTurnJSON(t *services.Turn) turnJSON {
	out := turnJSON{
		TurnID: t.ID, SessionID: t.SessionID, IdentityID: optional(&t.IdentityID), RequestID: t.RequestID,
		Status: t.Status.String(), Position: t.Position,
		CreatedAt: t.CreatedAt.UTC(), FinalizedAt: optionalTime(t.FinalizedAt), DeletedAt: optionalTime(t.DeletedAt),
		TranslateChat: t.TranslateChat, RecordVersion: t.Version, Duplicate: t.Duplicate,
		Inherited:       t.Inherited,
		DroppedMetadata: append([]string{}, t.DroppedMetadata...), // never null
		Metadata:        rawObject{t.Metadata()}, existed: t.Existed || t.Duplicate,
	}
	if len(out.Metadata.RawMessage) == 0 {
		out.Metadata.RawMessage = json.RawMessage("{}")
	}
	if t.ReplacedBy != uuid.Nil {
		id := t.ReplacedBy.String()
		out.ReplacedByTurnID = &id
	}
	if q := t.Question; q != nil {
		out.PipelineName, out.Consultant = optional(&q.PipelineName), optional(&q.Consultant)
		out.Repository = optional(&q.Repository)
		out.TranslateChat = q.TranslateChat
		out.QuestionNeutral, out.QuestionTranslated = &q.QuestionNeutral, optional(&q.QuestionTranslated)
		out.QuestionMessages.RawMessage = q.QuestionMessages
	}
	if a := t.Answer; a != nil {
		out.AnswerNeutral, out.AnswerTranslated = &a.AnswerNeutral, optional(&a.AnswerTranslated)
		out.AnswerTranslatedIsFallback = a.AnswerTranslatedIsFallback
		out.AnswerMessages.RawMessage = a.AnswerMessages
	}
	return out
}

func optional(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// answerTurn answers a write on a turn.
func answerTurn(ctx context.Context, t services.Turn, err error) (turnJSON, error) {
	if err != nil {
		return turnJSON{}, err
	}
	notePosition(ctx, t.Position)
	noteTurns(ctx, 1)
	return newTurnJSON(&t), nil
}

type startIn struct {
	SessionID      id      `path:"session_id"`
	IdempotencyKey string  `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	OnlyNew        onlyNew `header:"If-None-Match" doc:"A turn that stands already is left as it is, and gets no answer"`
	Body           startBody
}

type startBody struct {
	RequestID                  *id       `json:"request_id,omitempty" doc:"The same one again gives the same turn, for ever; required here or as Idempotency-Key"`
	QuestionNeutral            string    `json:"question_neutral,omitempty" doc:"Required, unless question_translated is there, or question_messages with something without text"`
	QuestionTranslated         string    `json:"question_translated,omitempty"`
	TranslateChat              bool      `json:"translate_chat,omitempty" doc:"The answer is wanted translated, too"`
	IdentityID                 *id       `json:"identity_id,omitempty" doc:"Links the session; 409 if it belongs to another"`
	PipelineName               string    `json:"pipeline_name,omitempty"`
	Consultant                 string    `json:"consultant,omitempty"`
	Repository                 string    `json:"repository,omitempty"`
	Metadata                   rawObject `json:"metadata,omitempty" doc:"Keys that are not on the allowlist are not kept"`
	QuestionMessages           rawList   `json:"question_messages,omitempty" doc:"Chat messages in the OpenAI form; what prompts show of the question"`
	AnswerNeutral              *string   `json:"answer_neutral,omitempty" doc:"With an answer the turn is recorded whole, by the rules of finalize; metadata is that of the start"`
	AnswerTranslated           string    `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool      `json:"answer_translated_is_fallback,omitempty"`
	AnswerMessages             rawList   `json:"answer_messages,omitempty" doc:"Chat messages in the OpenAI form; what prompts show of the answer"`
}

// answer returns the answer that a body brings, nil for none.
func (b *startBody) answer() *events.Answer {
	if b.AnswerNeutral == nil && b.AnswerTranslated == "" && !b.AnswerTranslatedIsFallback &&
		b.AnswerMessages.RawMessage == nil {
		return nil
	}
	a := &events.Answer{
		AnswerTranslated: b.AnswerTranslated, AnswerTranslatedIsFallback: b.AnswerTranslatedIsFallback,
		AnswerMessages: b.AnswerMessages.RawMessage,
	}
	if b.AnswerNeutral != nil {
		a.AnswerNeutral = *b.AnswerNeutral
	}
	return a
}

func (a *surface) startTurn(ctx context.Context, in *startIn) (turnJSON, error) {
	request, err := requestID(in.Body.RequestID, in.IdempotencyKey)
	if err != nil {
		return turnJSON{}, err
	}
	b, session, identity := &in.Body, in.SessionID.text(), in.Body.IdentityID.text()
	if err := a.cfg.Admit(ctx, services.Entry{
		Kind: services.KindTurn, SessionID: session, IdentityID: identity, Begins: true,
	}); err != nil {
		return turnJSON{}, err
	}
	source := ""
	if identity != "" { // only a link can be refused
		source = a.cfg.Source(ctx)
	}
	c := b.command(session, request, source)
	c.OnlyNew = bool(in.OnlyNew)
	t, err := a.cfg.Turns.StartTurn(ctx, c)
	return answerTurn(ctx, t, err)
}

// command returns the start that a body asks for.
func (b *startBody) command(session, request, source string) decide.Start {
	return decide.Start{
		SessionID: session, RequestID: request, IdentityID: b.IdentityID.text(), SourceHash: source,
		Question: events.Question{
			PipelineName: b.PipelineName, Consultant: b.Consultant, Repository: b.Repository,
			TranslateChat: b.TranslateChat, Metadata: b.Metadata.RawMessage,
			QuestionNeutral: b.QuestionNeutral, QuestionTranslated: b.QuestionTranslated,
			QuestionMessages: b.QuestionMessages.RawMessage,
		},
		Answer: b.answer(),
	}
}

// requestID returns the id from the body or the header, and refuses two different ones.
func requestID(inBody *id, inHeader string) (string, error) {
	switch {
	case inBody == nil && inHeader == "":
		return "", invalid("request_id", "is required, in the body or as the header Idempotency-Key")
	case inBody == nil:
		return inHeader, validID("request_id", inHeader)
	case inHeader != "" && inBody.text() != inHeader:
		return "", invalid("request_id", "differs from the header Idempotency-Key: send one of them")
	default:
		return inBody.text(), nil
	}
}

type finalizeIn struct {
	SessionID id     `path:"session_id"`
	TurnID    turnID `path:"turn_id"`
	Body      finalizeBody
}

type finalizeBody struct {
	RequestID                  *id       `json:"request_id,omitempty" doc:"Checked against the turn, where it is sent"`
	AnswerNeutral              string    `json:"answer_neutral,omitempty" doc:"Required, unless answer_messages holds a message"`
	AnswerTranslated           string    `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool      `json:"answer_translated_is_fallback,omitempty"`
	Metadata                   rawObject `json:"metadata,omitempty" doc:"Laid over the metadata of the start"`
	AnswerMessages             rawList   `json:"answer_messages,omitempty" doc:"Chat messages in the OpenAI form; what prompts show of the answer"`
	QuestionNeutral            string    `json:"question_neutral,omitempty" doc:"For development: with TURNLEDGER_FINALIZE_WITHOUT_START and a request_id, a turn that was never started is started with it; else it has no effect"`
}

func (a *surface) finalizeTurn(ctx context.Context, in *finalizeIn) (turnJSON, error) {
	b := &in.Body
	c := decide.Finalize{
		SessionID: in.SessionID.text(), TurnID: in.TurnID.UUID, RequestID: b.RequestID.text(),
		Metadata: b.Metadata.RawMessage,
		Answer: events.Answer{
			AnswerNeutral: b.AnswerNeutral, AnswerTranslated: b.AnswerTranslated,
			AnswerTranslatedIsFallback: b.AnswerTranslatedIsFallback, AnswerMessages: b.AnswerMessages.RawMessage,
		},
	}
	if b.QuestionNeutral != "" {
		c.StartFirst = &decide.Start{Question: events.Question{QuestionNeutral: b.QuestionNeutral}}
	}
	t, err := a.cfg.Turns.FinalizeTurn(ctx, c)
	return answerTurn(ctx, t, err)
}

type redactIn struct {
	SessionID id     `path:"session_id"`
	TurnID    turnID `path:"turn_id"`
	Body      *eraseBody
}

func (a *surface) redactTurn(ctx context.Context, in *redactIn) (turnJSON, error) {
	t, err := a.cfg.Turns.RedactTurn(ctx, in.SessionID.text(), decide.Redact{
		TurnID: in.TurnID.UUID, Reason: in.Body.Reason, RedactedBy: in.Body.By,
	})
	return answerTurn(ctx, t, err)
}

type correctIn struct {
	SessionID      id     `path:"session_id"`
	TurnID         turnID `path:"turn_id"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"The request_id, where the body has none"`
	Body           correctBody
}

type correctBody struct {
	RequestID          *id     `json:"request_id,omitempty" doc:"A new one, not that of a start; required here or as Idempotency-Key"`
	QuestionNeutral    *string `json:"question_neutral,omitempty"`
	QuestionTranslated *string `json:"question_translated,omitempty"`
	AnswerNeutral      *string `json:"answer_neutral,omitempty"`
	AnswerTranslated   *string `json:"answer_translated,omitempty"`
}

func (a *surface) correctTurn(ctx context.Context, in *correctIn) (turnJSON, error) {
	request, err := requestID(in.Body.RequestID, in.IdempotencyKey)
	if err != nil {
		return turnJSON{}, err
	}
	t, err := a.cfg.Turns.CorrectTurn(ctx, decide.Correct{
		SessionID: in.SessionID.text(), RequestID: request, TurnID: in.TurnID.UUID,
		QuestionNeutral: in.Body.QuestionNeutral, QuestionTranslated: in.Body.QuestionTranslated,
		AnswerNeutral: in.Body.AnswerNeutral, AnswerTranslated: in.Body.AnswerTranslated,
	})
	return answerTurn(ctx, t, err)
}
