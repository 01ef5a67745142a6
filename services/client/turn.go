package client

import (
	"encoding/json"
	"time"
)

// Start asks for a turn. RequestID is the idempotency key of the request; the server refuses a start without one.
type Start struct {
	SessionID          string            `json:"-"`
	RequestID          string            `json:"request_id,omitempty"`
	IdentityID         string            `json:"identity_id,omitempty"`
	QuestionNeutral    string            `json:"question_neutral,omitempty"`
	QuestionTranslated string            `json:"question_translated,omitempty"`
	TranslateChat      bool              `json:"translate_chat,omitempty"`
	PipelineName       string            `json:"pipeline_name,omitempty"`
	Consultant         string            `json:"consultant,omitempty"`
	Repository         string            `json:"repository,omitempty"`
	Metadata           map[string]any    `json:"metadata,omitempty"`
	QuestionMessages   []json.RawMessage `json:"question_messages,omitempty"`
}

// Finalize is the answer of a turn. If RequestID is set, the server checks that it is the turn's.
type Finalize struct {
	SessionID                  string            `json:"-"`
	TurnID                     string            `json:"-"`
	RequestID                  string            `json:"request_id,omitempty"`
	AnswerNeutral              string            `json:"answer_neutral,omitempty"`
	AnswerTranslated           string            `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool              `json:"answer_translated_is_fallback,omitempty"`
	Metadata                   map[string]any    `json:"metadata,omitempty"`
	AnswerMessages             []json.RawMessage `json:"answer_messages,omitempty"`
}

// Correct replaces a turn; nil members stay as they are. RequestID must be a new one.
type Correct struct {
	SessionID          string  `json:"-"`
	TurnID             string  `json:"-"`
	RequestID          string  `json:"request_id,omitempty"`
	QuestionNeutral    *string `json:"question_neutral,omitempty"`
	QuestionTranslated *string `json:"question_translated,omitempty"`
	AnswerNeutral      *string `json:"answer_neutral,omitempty"`
	AnswerTranslated   *string `json:"answer_translated,omitempty"`
}

// Redact removes a turn, with all its versions, from everything that is shown.
type Redact struct {
	SessionID  string `json:"-"`
	TurnID     string `json:"-"`
	Reason     string `json:"reason,omitempty"`
	RedactedBy string `json:"redacted_by,omitempty"`
}

// Turn is one question and its answer. A member that the turn lacks is empty or zero.
type Turn struct {
	TurnID                     string            `json:"turn_id"`
	SessionID                  string            `json:"session_id"`
	IdentityID                 string            `json:"identity_id"`
	RequestID                  string            `json:"request_id"`
	Status                     string            `json:"status"`
	Position                   string            `json:"position"`
	CreatedAt                  time.Time         `json:"created_at"`
	FinalizedAt                time.Time         `json:"finalized_at"`
	PipelineName               string            `json:"pipeline_name"`
	Consultant                 string            `json:"consultant"`
	Repository                 string            `json:"repository"`
	TranslateChat              bool              `json:"translate_chat"`
	QuestionNeutral            string            `json:"question_neutral"`
	QuestionTranslated         string            `json:"question_translated"`
	AnswerNeutral              string            `json:"answer_neutral"`
	AnswerTranslated           string            `json:"answer_translated"`
	AnswerTranslatedIsFallback bool              `json:"answer_translated_is_fallback"`
	QuestionMessages           []json.RawMessage `json:"question_messages"`
	AnswerMessages             []json.RawMessage `json:"answer_messages"`
	Metadata                   map[string]any    `json:"metadata"`
	RecordVersion              int               `json:"record_version"`
	ReplacedByTurnID           string            `json:"replaced_by_turn_id"`
	DeletedAt                  time.Time         `json:"deleted_at"`
	Inherited                  bool              `json:"inherited"`
	Duplicate                  bool              `json:"duplicate"`
	DroppedMetadata            []string          `json:"dropped_metadata"`
}

// TurnPage is a page of a listing; NextCursor is empty at the end.
type TurnPage struct {
	Turns      []Turn `json:"turns"`
	NextCursor string `json:"next_cursor"`
}

// TurnQuery selects turns of a session. Status is finalized (default), pending or all. Zero values mean the server's
// defaults.
type TurnQuery struct {
	Status string
	Limit  int
	Cursor string
}

// IdentityQuery selects an identity's turns that were created at or after Since and before Until. Zero values mean no
// bounds, or the server's defaults.
type IdentityQuery struct {
	Since, Until time.Time
	Limit        int
	Cursor       string
}

// Pair is the question and the answer of a turn, as a prompt shows them.
type Pair struct {
	QuestionNeutral string `json:"question_neutral"`
	AnswerNeutral   string `json:"answer_neutral"`
}
