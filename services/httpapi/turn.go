package httpapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// turnJSON is a turn as CONTRACT §2 has it. All members are always there; what a
// turn lacks is null, false or empty.
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
	Duplicate                  bool            `json:"duplicate" doc:"The log had it already; what came first stands"`
	DroppedMetadata            []string        `json:"dropped_metadata" nullable:"false" doc:"Keys that are not on the allowlist and were not kept"`
}

// newTurnJSON shows a turn. It points into t, which must not change any more.
func newTurnJSON(t *Turn) turnJSON {
	out := turnJSON{
		TurnID: t.ID, SessionID: t.SessionID, IdentityID: optional(&t.IdentityID), RequestID: t.RequestID,
		Status: t.Status.String(), Position: t.Position,
		CreatedAt: t.CreatedAt.UTC(), FinalizedAt: optionalTime(t.FinalizedAt), DeletedAt: optionalTime(t.DeletedAt),
		TranslateChat: t.TranslateChat, RecordVersion: t.Version, Duplicate: t.Duplicate, DroppedMetadata: t.DroppedMetadata,
		Metadata: rawObject{t.Metadata()},
	}
	if len(out.Metadata.RawMessage) == 0 {
		out.Metadata.RawMessage = json.RawMessage("{}")
	}
	if out.DroppedMetadata == nil {
		out.DroppedMetadata = []string{}
	}
	if t.ReplacedBy != uuid.Nil {
		id := t.ReplacedBy.String()
		out.ReplacedByTurnID = &id
	}
	if q := t.Question; q != nil {
		out.PipelineName, out.Consultant, out.Repository = optional(&q.PipelineName), optional(&q.Consultant), optional(&q.Repository)
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
