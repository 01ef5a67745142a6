package audit

import (
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// way of a turn into the tables.
type way uint8

const (
	// copied: the turn is new.
	copied way = iota
	// merged: its rows are written whole, whether or not they stand already.
	merged
	// answered: the question stands, if the turn belongs to the audit, and gets its answer.
	answered
	// answeredAgain: the answer may stand already, too.
	answeredAgain
	// untouched: nothing but the turn that replaces it is new.
	untouched
)

// whole tells whether both halves of the turn, as far as there are two, are in the batch.
func (w way) whole() bool { return w == copied || w == merged }

type turnRow struct {
	way     way
	session string
	owner   string
	turn    conversation.Turn
	// needs is a turn that must stand in the table for this one to belong there.
	needs uuid.UUID
	drop  bool
}

func (p *plan) bringIn(e *projections.Judged, t *conversation.Turn) {
	r := p.byTurn[t.ID]
	switch {
	case r == nil && e.Change.Kind == conversation.Linked:
		p.put(e, t, copied)
	case r == nil:
		p.put(e, t, merged)
	case !r.way.whole() || r.needs != uuid.Nil:
		r.way, r.needs, r.turn = merged, uuid.Nil, *t
	}
}

// put notes a whole row.
func (p *plan) put(e *projections.Judged, t *conversation.Turn, how way) *turnRow {
	r := &turnRow{way: how, session: e.SessionID, owner: e.Head.Identity, turn: *t}
	p.turns = append(p.turns, r)
	p.byTurn[t.ID] = r
	return r
}

// answer completes a turn of the batch, or notes the answer to an earlier one. That belongs to the audit only if the
// table has it: of a turn from before the link, if the link has brought it in.
func (p *plan) answer(e *projections.Judged) {
	t := e.Change.Turn
	r := p.byTurn[t.ID]
	if r == nil {
		p.put(e, t, answered).needs = t.ID
		return
	}
	question := r.turn.Question
	r.turn = *t
	r.turn.Question = question
}

// correct notes the new version, and that it replaces the old one. Where the link left the old one out, the new one stays out
// too.
func (p *plan) correct(e *projections.Judged) {
	t, old := e.Change.Turn, e.Change.Turns[0]
	r := p.byTurn[old.ID]
	if r == nil {
		r = p.put(e, old, untouched)
	}
	r.turn.Status, r.turn.ReplacedBy = old.Status, old.ReplacedBy
	next := p.put(e, t, copied)
	switch {
	case r.way.whole():
		next.needs = r.needs
	case old.Place < e.Head.LinkedAt:
		next.needs = old.ID
	}
}

// redact notes the tombstones. They come from the redaction, so that they don't depend on what else the log still holds.
func (p *plan) redact(e *projections.Judged, linked bool) {
	if p.redacted == nil {
		p.redacted = map[named]*projections.Judged{}
	}
	for _, t := range e.Change.Turns {
		p.redacted[named{e.SessionID, t.ID}] = e
		if !linked {
			continue
		}
		r := p.byTurn[t.ID]
		if r == nil {
			p.put(e, t, merged)
			continue
		}
		r.turn = *t
		if !r.way.whole() || r.needs != uuid.Nil {
			r.way, r.needs = merged, uuid.Nil
		}
	}
}

// of gives the turns that go one of some ways.
func (p *plan) of(ways ...way) []*turnRow {
	var out []*turnRow
	for _, r := range p.turns {
		if !r.drop && slices.Contains(ways, r.way) {
			out = append(out, r)
		}
	}
	return out
}

// answers gives those of them that have one.
func (p *plan) answers(ways ...way) []*turnRow {
	return slices.DeleteFunc(p.of(ways...), func(r *turnRow) bool { return r.turn.FinalizedAt.IsZero() })
}

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
