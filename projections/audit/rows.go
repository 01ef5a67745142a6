package audit

import (
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// The columns of each kind of row, in the order in which its encoder writes them.

var questionColumns = columns{
	{"place", "bigint"}, {"position", "bigint"}, {"deleted_position", "bigint"}, {"created_at", "timestamptz"}, {"deleted_at", "timestamptz"},
	{"turn_id", "uuid"}, {"replaces_turn_id", "uuid"}, {"replaced_by_turn_id", "uuid"}, {"record_version", "int"},
	{"partition", "smallint"}, {"created_ns", "smallint"}, {"deleted_ns", "smallint"}, {"translate_chat", "boolean"},
	{"status_before", "text"}, {"session_id", "text"}, {"identity_id", "text"}, {"request_id", "text"},
	{"pipeline_name", "text"}, {"consultant", "text"}, {"repository", "text"},
	{"question_neutral", "text"}, {"question_translated", "text"}, {"question_messages", "json"}, {"metadata", "jsonb"},
}

func (r *turnRow) encodeQuestion(b *rowBuffer, partition int) {
	t := &r.turn
	b.begin(len(questionColumns))
	b.bigint(t.Place)
	b.bigint(t.Started)
	b.seq(t.Gone)
	b.time(t.CreatedAt)
	b.time(t.DeletedAt)
	b.uuid(t.ID)
	b.uuid(t.Replaces)
	b.uuid(t.ReplacedBy)
	b.integer(t.Version)
	b.smallint(partition)
	b.nanos(t.CreatedAt)
	b.nanos(t.DeletedAt)
	b.boolean(t.TranslateChat)
	if t.Status == conversation.Redacted {
		b.word(t.Was.String())
	} else {
		b.null()
	}
	b.word(r.session)
	b.word(r.owner)
	b.word(t.RequestID)
	q := t.Question
	if q == nil {
		q = &noQuestion
	}
	b.optionalText(q.PipelineName)
	b.optionalText(q.Consultant)
	b.optionalText(q.Repository)
	b.text(q.QuestionNeutral)
	b.optionalText(q.QuestionTranslated)
	b.json(toJSON(q.QuestionMessages))
	b.jsonb(toJSONB(q.Metadata))
}

// noQuestion is a tombstone's.
var noQuestion events.Question

var answerColumns = columns{
	{"final_position", "bigint"}, {"finalized_at", "timestamptz"}, {"turn_id", "uuid"}, {"finalized_ns", "smallint"},
	{"answer_translated_is_fallback", "boolean"}, {"answer_neutral", "text"}, {"answer_translated", "text"},
	{"answer_messages", "json"}, {"metadata", "jsonb"},
}

func (r *turnRow) encodeAnswer(b *rowBuffer) {
	t := &r.turn
	b.begin(len(answerColumns))
	b.seq(t.Final)
	b.time(t.FinalizedAt)
	b.uuid(t.ID)
	b.nanos(t.FinalizedAt)
	if a := t.Answer; a != nil {
		b.boolean(a.AnswerTranslatedIsFallback)
		b.text(a.AnswerNeutral)
		b.optionalText(a.AnswerTranslated)
		b.json(toJSON(a.AnswerMessages))
	} else {
		b.boolean(false)
		b.null()
		b.null()
		b.null()
	}
	b.jsonb(toJSONB(t.AnswerMetadata))
}

// ledgerRow is an event and the turns that its fact names.
type ledgerRow struct {
	e              *projections.Judged
	turn, replaces uuid.UUID
}

var ledgerColumns = columns{
	{"seq", "bigint"}, {"recorded_at", "timestamptz"}, {"turn_id", "uuid"}, {"replaces_turn_id", "uuid"}, {"partition", "smallint"},
	{"event_id", "text"}, {"type", "text"}, {"session_id", "text"}, {"identity_id", "text"},
}

func (l ledgerRow) encode(b *rowBuffer) {
	e := l.e
	b.begin(len(ledgerColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.uuid(l.turn)
	b.uuid(l.replaces)
	b.smallint(e.Position.Partition)
	b.word(label(e.ID))
	b.word(label(e.Type))
	b.optional(knownID(e.SessionID))
	if e.SessionID != "" {
		b.optional(e.Head.Identity)
	} else {
		b.optional(knownID(e.IdentityID))
	}
}

// securityRow is a refused link or an anomaly.
type securityRow struct{ ledgerRow }

var securityColumns = columns{
	{"seq", "bigint"}, {"recorded_at", "timestamptz"}, {"turn_id", "uuid"}, {"partition", "smallint"}, {"kind", "text"}, {"reason", "text"},
	{"event_id", "text"}, {"type", "text"}, {"session_id", "text"}, {"identity_id", "text"}, {"source_hash", "text"},
}

func (s securityRow) encode(b *rowBuffer) {
	e := s.e
	asked, source := asker(e)
	b.begin(len(securityColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.uuid(s.turn)
	b.smallint(e.Position.Partition)
	b.word(e.Change.Kind.String())
	if e.Change.Kind == conversation.Refused {
		b.word(conversation.CodeLinkedElsewhere)
	} else {
		b.word(label(e.Change.Reason))
	}
	b.word(label(e.ID))
	b.word(label(e.Type))
	b.optional(knownID(e.SessionID))
	b.optional(knownID(asked))
	b.optional(label(source))
}

// asker tells who asked for a session, and from where.
func asker(e *projections.Judged) (identity, source string) {
	switch f := e.Fact.(type) {
	case *events.LinkRefused:
		return f.IdentityID, f.SourceHash
	case *events.SessionLinked:
		return f.IdentityID, ""
	default:
		return e.IdentityID, ""
	}
}

// record notes an event for the ledger and for security. What names a redacted turn or an erased session, and comes after
// it, does not stay in the log.
func (p *plan) record(e *projections.Judged) {
	row := ledgerRow{e: e}
	row.turn, row.replaces = turnsNamed(e.Fact)
	kind := e.Change.Kind
	if kind == conversation.Refused || kind == conversation.Anomaly {
		p.security = append(p.security, securityRow{row})
	}
	afterErasure := e.Head.Erased != 0 && e.Head.Erased != e.Position.Seq
	afterRedaction := kind == conversation.Anomaly && e.Change.Reason == conversation.CodeTurnRedacted ||
		kind == conversation.Duplicate && e.Change.Turn != nil && e.Change.Turn.Gone != 0
	if !afterErasure && !afterRedaction {
		p.ledger = append(p.ledger, row)
	}
}

var sessionColumns = columns{
	{"linked_position", "bigint"}, {"boundary", "bigint"}, {"reset_position", "bigint"}, {"erased_position", "bigint"},
	{"created_at", "timestamptz"}, {"last_active_at", "timestamptz"}, {"erased_at", "timestamptz"},
	{"finalized", "int"}, {"pending", "int"}, {"shown_finalized", "int"}, {"shown_pending", "int"},
	{"partition", "smallint"}, {"created_ns", "smallint"}, {"last_active_ns", "smallint"}, {"erased_ns", "smallint"},
	{"session_id", "text"}, {"identity_id", "text"},
}

func encodeSession(b *rowBuffer, e *projections.Judged) {
	h := &e.Head
	b.begin(len(sessionColumns))
	b.seq(h.LinkedAt)
	b.bigint(h.Boundary)
	b.seq(h.ResetAt)
	b.seq(h.Erased)
	b.time(h.CreatedAt)
	b.time(h.LastActive)
	b.time(h.ErasedAt)
	b.integer(h.Finalized)
	b.integer(h.Pending)
	b.integer(h.ShownFinalized)
	b.integer(h.ShownPending)
	b.smallint(e.Position.Partition)
	b.nanos(h.CreatedAt)
	b.nanos(h.LastActive)
	b.nanos(h.ErasedAt)
	b.word(e.SessionID)
	b.optional(h.Identity)
}

// activityColumns are what turns that come and go change in a session.
var activityColumns = columns{
	{"last_active_at", "timestamptz"}, {"last_active_ns", "smallint"},
	{"finalized", "int"}, {"pending", "int"}, {"shown_finalized", "int"}, {"shown_pending", "int"}, {"session_id", "text"},
}

func encodeActivity(b *rowBuffer, e *projections.Judged) {
	h := &e.Head
	b.begin(len(activityColumns))
	b.time(h.LastActive)
	b.nanos(h.LastActive)
	b.integer(h.Finalized)
	b.integer(h.Pending)
	b.integer(h.ShownFinalized)
	b.integer(h.ShownPending)
	b.word(e.SessionID)
}

var linkColumns = columns{
	{"linked_position", "bigint"}, {"linked_at", "timestamptz"}, {"partition", "smallint"}, {"session_id", "text"}, {"identity_id", "text"},
}

func encodeLink(b *rowBuffer, e *projections.Judged) {
	b.begin(len(linkColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.smallint(e.Position.Partition)
	b.word(e.SessionID)
	b.word(e.Head.Identity)
}
