package audit

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// Turn is a row of the view turns. Its sequences are of Partition. Metadata of the whole turn is in its question.
type Turn struct {
	SessionID, IdentityID string
	Partition             int
	session.Turn
	// listed is the time by which an identity's listing orders the turn.
	listed time.Time
}

// turnColumns of the view, in the order in which scanTurn reads them.
const turnColumns = `session_id, identity_id, partition, turn_id, request_id, status, coalesce(status_before, ''),
	record_version, place, position, coalesce(final_position, 0), coalesce(deleted_position, 0),
	created_at, created_ns, finalized_at, coalesce(finalized_ns, 0), deleted_at, deleted_ns,
	replaces_turn_id, replaced_by_turn_id, translate_chat,
	pipeline_name, consultant, repository, question_neutral, question_translated, question_messages, metadata,
	answer_neutral, answer_translated, coalesce(answer_translated_is_fallback, false), answer_messages`

// scanTurn reads a row of turnColumns and a time.
func scanTurn(row pgx.CollectableRow) (t Turn, err error) {
	q, a := &events.Question{}, &events.Answer{}
	var status, before string
	var created, finalized, deleted stamp
	err = row.Scan(&t.SessionID, &t.IdentityID, &t.Partition, &t.ID, &t.RequestID, &status, &before,
		&t.Version, &t.Place, &t.Started, &t.Final, &t.Redacted,
		&created.at, &created.ns, &finalized.at, &finalized.ns, &deleted.at, &deleted.ns,
		(*zeronull.UUID)(&t.Replaces), (*zeronull.UUID)(&t.ReplacedBy), &t.TranslateChat,
		orEmpty(&q.PipelineName), orEmpty(&q.Consultant), orEmpty(&q.Repository),
		&q.QuestionNeutral, orEmpty(&q.QuestionTranslated), (*[]byte)(&q.QuestionMessages), (*[]byte)(&q.Metadata),
		orEmpty(&a.AnswerNeutral), orEmpty(&a.AnswerTranslated), &a.AnswerTranslatedIsFallback,
		(*[]byte)(&a.AnswerMessages), (*zeronull.Timestamptz)(&t.listed))
	if err == nil {
		t.Status, err = parseStatus(status)
	}
	if err != nil {
		return t, err
	}
	t.CreatedAt, t.FinalizedAt, t.DeletedAt = created.time(), finalized.time(), deleted.time()
	if t.Status == session.Redacted {
		t.StatusBefore, err = parseStatus(before)
		return t, err
	}
	shown(q, a)
	q.TranslateChat, q.Metadata = t.TranslateChat, rows.FromJSONB(q.Metadata)
	t.Question = q
	if !t.FinalizedAt.IsZero() {
		t.Answer = a
	}
	return t, nil
}

// shown changes the texts of a row to what they were before they were stored.
func shown(q *events.Question, a *events.Answer) {
	for _, text := range []*string{
		&q.PipelineName, &q.Consultant, &q.Repository, &q.QuestionNeutral, &q.QuestionTranslated,
		&a.AnswerNeutral, &a.AnswerTranslated,
	} {
		*text = rows.FromText(*text)
	}
}

// orEmpty scans a text, with NULL as "".
func orEmpty(s *string) *zeronull.Text { return (*zeronull.Text)(s) }

func parseStatus(name string) (session.Status, error) {
	for _, s := range []session.Status{
		session.Pending, session.Finalized, session.Redacted, session.Replaced,
	} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("a status that is none: %q", name)
}

// stamp is a time in the tables' form: with the nanoseconds in a column of their own, and NULL for none.
type stamp struct {
	at zeronull.Timestamptz
	ns int
}

func (s stamp) time() time.Time {
	if at := time.Time(s.at); !at.IsZero() {
		return at.UTC().Add(time.Duration(s.ns))
	}
	return time.Time{}
}
