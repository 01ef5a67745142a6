package audit

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Turn is a row of turns. Its sequences are of Partition. Metadata of the whole turn stands in its question.
type Turn struct {
	SessionID, IdentityID string
	Partition             int
	conversation.Turn
	// listed is the place in time in an identity's listing.
	listed time.Time
}

// turnColumns of the view, in the order in which a row is read.
const turnColumns = `place, position, final_position, deleted_position, created_at, finalized_at, deleted_at,
	turn_id, replaces_turn_id, replaced_by_turn_id, record_version, partition, created_ns, coalesce(finalized_ns, 0), deleted_ns,
	translate_chat, coalesce(answer_translated_is_fallback, false), status, status_before, session_id, identity_id, request_id,
	pipeline_name, consultant, repository, question_neutral, question_translated, question_messages,
	answer_neutral, answer_translated, answer_messages, metadata`

// stored is a row as it is read, in the order of turnColumns.
type stored struct {
	place, position                          uint64
	final, gone                              *uint64
	created                                  time.Time
	finalized, deleted                       *time.Time
	id                                       uuid.UUID
	replaces, replacedBy                     *uuid.UUID
	version, partition                       int
	createdNs, finalizedNs, deletedNs        int
	translate, fallback                      bool
	status                                   string
	before                                   *string
	session, identity, request               string
	pipeline, consultant, repository         *string
	question                                 string
	questionTranslated, answer, answerTransl *string
	questionMessages, answerMessages         []byte
	metadata                                 []byte
}

func (s *stored) targets() []any {
	return []any{
		&s.place, &s.position, &s.final, &s.gone, &s.created, &s.finalized, &s.deleted,
		&s.id, &s.replaces, &s.replacedBy, &s.version, &s.partition, &s.createdNs, &s.finalizedNs, &s.deletedNs,
		&s.translate, &s.fallback, &s.status, &s.before, &s.session, &s.identity, &s.request,
		&s.pipeline, &s.consultant, &s.repository, &s.question, &s.questionTranslated, &s.questionMessages,
		&s.answer, &s.answerTransl, &s.answerMessages, &s.metadata,
	}
}

// collectTurns reads all rows of a query of turnColumns.
func collectTurns(found pgx.Rows, err error) ([]Turn, error) {
	return collect(found, err, func(*Turn) []any { return nil })
}

// collectListed reads the place in a listing, too.
func collectListed(found pgx.Rows, err error) ([]Turn, error) {
	return collect(found, err, func(t *Turn) []any { return []any{&t.listed} })
}

func collect(found pgx.Rows, err error, more func(*Turn) []any) ([]Turn, error) {
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var out []Turn
	for found.Next() {
		var s stored
		var beside Turn
		if err := found.Scan(append(s.targets(), more(&beside)...)...); err != nil {
			return nil, err
		}
		t, err := s.turn()
		if err != nil {
			return nil, err
		}
		t.listed = beside.listed
		out = append(out, t)
	}
	return out, found.Err()
}

func (s *stored) turn() (Turn, error) {
	status, err := parseStatus(s.status)
	if err != nil {
		return Turn{}, err
	}
	t := Turn{SessionID: s.session, IdentityID: s.identity, Partition: s.partition, Turn: conversation.Turn{
		ID: s.id, RequestID: s.request, Status: status, Version: s.version,
		Place: s.place, Started: s.position, Final: zeroIfNull(s.final), Gone: zeroIfNull(s.gone),
		CreatedAt: exact(&s.created, s.createdNs), FinalizedAt: exact(s.finalized, s.finalizedNs), DeletedAt: exact(s.deleted, s.deletedNs),
		Replaces: zeroIfNull(s.replaces), ReplacedBy: zeroIfNull(s.replacedBy), TranslateChat: s.translate,
	}}
	if status == conversation.Redacted {
		t.Was, err = parseStatus(zeroIfNull(s.before))
		return t, err
	}
	t.Question = &events.Question{
		PipelineName: plain(s.pipeline), Consultant: plain(s.consultant), Repository: plain(s.repository), TranslateChat: s.translate,
		QuestionNeutral: fromText(s.question), QuestionTranslated: plain(s.questionTranslated),
		QuestionMessages: s.questionMessages, Metadata: fromJSONB(s.metadata),
	}
	if !t.FinalizedAt.IsZero() {
		t.Answer = &events.Answer{
			AnswerNeutral: plain(s.answer), AnswerTranslated: plain(s.answerTransl), AnswerTranslatedIsFallback: s.fallback,
			AnswerMessages: s.answerMessages,
		}
	}
	return t, nil
}

func parseStatus(name string) (conversation.Status, error) {
	for _, s := range []conversation.Status{conversation.Pending, conversation.Finalized, conversation.Redacted, conversation.Replaced} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("a status that is none: %q", name)
}

// exact puts the parts of a microsecond back.
func exact(t *time.Time, ns int) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC().Add(time.Duration(ns))
}

func plain(s *string) string { return fromText(zeroIfNull(s)) }

func zeroIfNull[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
