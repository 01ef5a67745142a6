package export

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// TurnRow is a folded turn as a row, with the names of the API. Position is that of its
// start. Messages and metadata are JSON. A tombstone has its ids, times and versions.
type TurnRow struct {
	SessionID                  string          `json:"session_id" parquet:"session_id,dict"`
	IdentityID                 *string         `json:"identity_id" parquet:"identity_id,optional,dict"`
	TurnID                     string          `json:"turn_id" parquet:"turn_id"`
	RequestID                  string          `json:"request_id" parquet:"request_id"`
	Status                     string          `json:"status" parquet:"status,dict"`
	Position                   string          `json:"position" parquet:"position"`
	CreatedAt                  time.Time       `json:"created_at" parquet:"created_at,timestamp(microsecond)"`
	FinalizedAt                *time.Time      `json:"finalized_at" parquet:"finalized_at,optional,timestamp(microsecond)"`
	DeletedAt                  *time.Time      `json:"deleted_at" parquet:"deleted_at,optional,timestamp(microsecond)"`
	PipelineName               *string         `json:"pipeline_name" parquet:"pipeline_name,optional,dict"`
	Consultant                 *string         `json:"consultant" parquet:"consultant,optional,dict"`
	Repository                 *string         `json:"repository" parquet:"repository,optional,dict"`
	TranslateChat              bool            `json:"translate_chat" parquet:"translate_chat"`
	QuestionNeutral            *string         `json:"question_neutral" parquet:"question_neutral,optional"`
	QuestionTranslated         *string         `json:"question_translated" parquet:"question_translated,optional"`
	AnswerNeutral              *string         `json:"answer_neutral" parquet:"answer_neutral,optional"`
	AnswerTranslated           *string         `json:"answer_translated" parquet:"answer_translated,optional"`
	AnswerTranslatedIsFallback bool            `json:"answer_translated_is_fallback" parquet:"answer_translated_is_fallback"`
	QuestionMessages           json.RawMessage `json:"question_messages" parquet:"question_messages,optional,json"`
	AnswerMessages             json.RawMessage `json:"answer_messages" parquet:"answer_messages,optional,json"`
	Metadata                   json.RawMessage `json:"metadata" parquet:"metadata,optional,json"`
	RecordVersion              int32           `json:"record_version" parquet:"record_version"`
	ReplacedByTurnID           *string         `json:"replaced_by_turn_id" parquet:"replaced_by_turn_id,optional"`
}

var turnColumns = []string{
	"session_id", "identity_id", "turn_id", "request_id", "status", "position", "created_at", "finalized_at", "deleted_at",
	"pipeline_name", "consultant", "repository", "translate_chat", "question_neutral", "question_translated", "answer_neutral",
	"answer_translated", "answer_translated_is_fallback", "question_messages", "answer_messages", "metadata", "record_version", "replaced_by_turn_id",
}

func (r TurnRow) cells() []string {
	return []string{
		r.SessionID, textCell(r.IdentityID), r.TurnID, r.RequestID, r.Status, r.Position, timeCell(&r.CreatedAt), timeCell(r.FinalizedAt), timeCell(r.DeletedAt),
		textCell(r.PipelineName), textCell(r.Consultant), textCell(r.Repository), strconv.FormatBool(r.TranslateChat), textCell(r.QuestionNeutral), textCell(r.QuestionTranslated), textCell(r.AnswerNeutral),
		textCell(r.AnswerTranslated), strconv.FormatBool(r.AnswerTranslatedIsFallback), string(r.QuestionMessages), string(r.AnswerMessages), string(r.Metadata), strconv.Itoa(int(r.RecordVersion)), textCell(r.ReplacedByTurnID),
	}
}

func (r TurnRow) size() int {
	n := 256 + len(r.QuestionMessages) + len(r.AnswerMessages) + len(r.Metadata)
	for _, s := range []*string{r.QuestionNeutral, r.QuestionTranslated, r.AnswerNeutral, r.AnswerTranslated} {
		n += len(textCell(s))
	}
	return n
}

func newTurnRow(s *conversation.State, t *conversation.Turn, partition int) TurnRow {
	r := TurnRow{
		SessionID: s.SessionID, IdentityID: present(s.Identity), TurnID: t.ID.String(), RequestID: t.RequestID, Status: t.Status.String(),
		Position: events.Position{Partition: partition, Seq: t.Started}.String(), CreatedAt: t.CreatedAt,
		FinalizedAt: presentTime(t.FinalizedAt), DeletedAt: presentTime(t.DeletedAt), TranslateChat: t.TranslateChat,
		Metadata: t.Metadata(), RecordVersion: int32(t.Version), //nolint:gosec // versions count corrections
	}
	if t.ReplacedBy != uuid.Nil {
		r.ReplacedByTurnID = present(t.ReplacedBy.String())
	}
	if q := t.Question; q != nil {
		r.PipelineName, r.Consultant, r.Repository = present(q.PipelineName), present(q.Consultant), present(q.Repository)
		r.QuestionNeutral, r.QuestionTranslated, r.QuestionMessages = present(q.QuestionNeutral), present(q.QuestionTranslated), q.QuestionMessages
	}
	if a := t.Answer; a != nil {
		r.AnswerNeutral, r.AnswerTranslated, r.AnswerTranslatedIsFallback = present(a.AnswerNeutral), present(a.AnswerTranslated), a.AnswerTranslatedIsFallback
		r.AnswerMessages = a.AnswerMessages
	}
	return r
}

func presentTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// fold folds lines of a replay, some sessions whole, and gives their turns, those of a
// session in their order.
func fold(lines func(yield func([]byte) error) error, rules conversation.Rules) ([]sortedRow, error) {
	states, partitions := map[string]*conversation.State{}, map[string]int{}
	err := lines(func(line []byte) error {
		r, err := Recorded(line)
		if err != nil || r.SessionID == "" {
			return err
		}
		s := states[r.SessionID]
		if s == nil {
			s = conversation.New(r.SessionID, rules)
			states[r.SessionID], partitions[r.SessionID] = s, r.Position.Partition
		}
		s.Fold(r)
		return nil
	})
	var rows []sortedRow
	for id, s := range states {
		for _, t := range s.Turns {
			first := s.Turns[0]
			rows = append(rows, sortedRow{first.CreatedAt, events.Position{Partition: partitions[id], Seq: first.Started}, newTurnRow(s, t, partitions[id])})
		}
	}
	return rows, err
}

// Recorded reads a line of a replay back as the recorded event that it prints. One
// that states no fact, or whose texts were redacted, states none.
func Recorded(line []byte) (events.Recorded, error) {
	e, err := parseLine(line)
	if err != nil {
		return events.Recorded{}, err
	}
	subject := ""
	if e.Subject != "" {
		subject = events.SubjectOf(e.Type, e.Subject, e.Data)
	}
	return events.Decode(events.Envelope{Subject: subject, Body: e.Data, Header: events.Header{
		events.HeaderSpecVersion: {"1.0"}, events.HeaderID: {e.ID}, events.HeaderType: {e.Type}, events.HeaderSource: {e.Source}, events.HeaderTime: {e.Time},
	}}, e.at, e.RecordedAt), nil
}
