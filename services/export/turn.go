package export

import (
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// TurnRow is a folded turn as a row, with the names of the API. Position is the position of its start. Messages and
// metadata are JSON. A tombstone has only ids, times and versions. Inherited: a branch shares the turn, which stands in
// the session SessionID. ForkedFromSessionID and ForkedFromTurnID: the session SessionID is a branch that shares turns
// up to and with that turn, which stands in that session.
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
	Inherited                  bool            `json:"inherited" parquet:"inherited"`
	ForkedFromSessionID        *string         `json:"forked_from_session_id" parquet:"forked_from_session_id,optional,dict"`
	ForkedFromTurnID           *string         `json:"forked_from_turn_id" parquet:"forked_from_turn_id,optional,dict"`
}

func (r TurnRow) size() int {
	n := 256 + len(r.QuestionMessages) + len(r.AnswerMessages) + len(r.Metadata)
	for _, s := range []*string{r.QuestionNeutral, r.QuestionTranslated, r.AnswerNeutral, r.AnswerTranslated} {
		if s != nil {
			n += len(*s)
		}
	}
	return n
}

func newTurnRow(s *session.State, t *session.Turn, partition int) TurnRow {
	sessionID, partition, inherited := s.Origin(t, partition)
	r := TurnRow{
		SessionID: sessionID, Inherited: inherited, IdentityID: present(s.Identity),
		TurnID: t.ID.String(), RequestID: t.RequestID,
		Status: t.Status.String(), Position: events.Position{Partition: partition, Seq: t.Started}.String(),
		CreatedAt: t.CreatedAt, FinalizedAt: presentTime(t.FinalizedAt), DeletedAt: presentTime(t.DeletedAt),
		TranslateChat: t.TranslateChat, Metadata: t.Metadata(),
		RecordVersion: int32(t.Version), //nolint:gosec // versions count corrections
	}
	if t.ReplacedBy != uuid.Nil {
		r.ReplacedByTurnID = present(t.ReplacedBy.String())
	}
	if q := t.Question; q != nil {
		r.PipelineName, r.Consultant = present(q.PipelineName), present(q.Consultant)
		r.Repository, r.QuestionMessages = present(q.Repository), q.QuestionMessages
		r.QuestionNeutral, r.QuestionTranslated = present(q.QuestionNeutral), present(q.QuestionTranslated)
	}
	if a := t.Answer; a != nil {
		r.AnswerNeutral, r.AnswerTranslated = present(a.AnswerNeutral), present(a.AnswerTranslated)
		r.AnswerTranslatedIsFallback, r.AnswerMessages = a.AnswerTranslatedIsFallback, a.AnswerMessages
	}
	return r
}

func presentTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// forkedFrom says what the session of a row shares.
func (r *TurnRow) forkedFrom(f session.Fork) {
	if list := f.Segments(); len(list) > 0 {
		last := list[len(list)-1]
		r.ForkedFromSessionID, r.ForkedFromTurnID = present(last.SessionID), present(last.ThroughTurnID.String())
	}
}

// folding are sessions that lines are folded into, with the partition of each.
type folding struct {
	rules      session.Rules
	states     map[string]*session.State
	partitions map[string]int
	// forks are those of all sessions, also of those that only leaves out.
	forks map[string]session.Fork
}

// fold folds the lines of some whole sessions.
func fold(lines iter.Seq2[[]byte, error], rules session.Rules) (*folding, error) {
	f := &folding{rules, map[string]*session.State{}, map[string]int{}, map[string]session.Fork{}}
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		r, err := Recorded(line)
		if err != nil {
			return nil, err
		}
		if r.SessionID == "" {
			continue
		}
		s := f.states[r.SessionID]
		if s == nil {
			s = session.New(r.SessionID, rules)
			f.states[r.SessionID], f.partitions[r.SessionID] = s, r.Position.Partition
		}
		s.Fold(r)
	}
	for id, s := range f.states {
		f.forks[id] = s.Fork()
	}
	return f, nil
}

// only leaves one session, with the turns that it shares if it is a branch, and the identity of its root.
func (f *folding) only(sessionID string) {
	s := f.states[sessionID]
	if s == nil {
		s = session.New(sessionID, f.rules)
	}
	if fork := s.Fork(); fork.Root != "" {
		list := fork.Segments()
		from := make([]*session.State, len(list))
		for i, g := range list {
			from[i] = f.states[g.SessionID]
		}
		if root := f.states[fork.Root]; root != nil {
			s.Identity = root.Lends()
		}
		s.Inherit(list, from, math.MaxInt)
	}
	f.states = map[string]*session.State{sessionID: s}
}

// rows returns the turns of the sessions, each session's in order.
func (f *folding) rows() (rows []sortedRow) {
	for id, s := range f.states {
		for _, t := range s.Turns {
			first := events.Position{Partition: f.partitions[id], Seq: s.Turns[0].Started}
			row := newTurnRow(s, t, f.partitions[id])
			row.forkedFrom(f.forks[row.SessionID])
			rows = append(rows, sortedRow{s.Turns[0].CreatedAt, first, row})
		}
	}
	return rows
}

// Recorded parses a line of a replay into the recorded event that it prints. If the event states no fact, or its texts
// were redacted, the result states no fact.
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
		events.HeaderSpecVersion: {"1.0"}, events.HeaderID: {e.ID}, events.HeaderType: {e.Type},
		events.HeaderSource: {e.Source}, events.HeaderTime: {e.Time},
	}}, e.at, e.RecordedAt), nil
}
