package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// writeMode is how a turn gets into the tables.
type writeMode uint8

const (
	// copied: the turn is new.
	copied writeMode = iota
	// merged: its rows are written whole, whether or not they exist.
	merged
	// answered: the question exists, if the turn belongs to the audit, and gets its answer.
	answered
	// answeredAgain: the answer may exist already, too.
	answeredAgain
	// untouched: only the name of the turn that replaces it is new.
	untouched
)

// whole reports whether the batch has both the question and, if there is one, the answer of the turn.
func (w writeMode) whole() bool { return w == copied || w == merged }

type turnRow struct {
	mode              writeMode
	session, identity string
	partition         int
	turn              session.Turn
	// needs is a turn that must be in the table, or this turn does not belong there.
	needs uuid.UUID
	drop  bool
	// asked and told are the terms of the question and of the answer.
	asked, told []int32
}

func (p *plan) bringIn(e *projections.Judged, t *session.Turn) {
	r := p.byTurn[t.ID]
	switch {
	case r == nil && e.Change.Kind == session.Linked:
		p.put(e, t, copied)
	case r == nil:
		p.put(e, t, merged)
	case !r.mode.whole() || r.needs != uuid.Nil:
		r.mode, r.needs, r.turn = merged, uuid.Nil, *t
	}
}

// put adds a whole row.
func (p *plan) put(e *projections.Judged, t *session.Turn, how writeMode) *turnRow {
	r := &turnRow{mode: how, session: e.SessionID, identity: e.Head.Identity, partition: e.Position.Partition, turn: *t}
	p.turns = append(p.turns, r)
	p.byTurn[t.ID] = r
	return r
}

// answer completes a turn of the batch, or notes the answer to an earlier turn. An earlier turn belongs to the audit
// only if the table has it: a link may have left it out.
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

// extend appends to a half of a turn of the batch, or of one that the tables have. A link may have left the turn out.
func (a *Audit) extend(ctx context.Context, p *plan, e *projections.Judged) error {
	r := p.byTurn[e.Change.Turn.ID]
	if r == nil && p.tables == nil {
		return nil
	}
	if r == nil {
		stands, by, err := a.stands(ctx, p.tables, e.Change.Turn)
		p.read[e.Change.Turn.ID] = by
		if err != nil || stands == nil {
			return err
		}
		r = p.put(e, stands, merged)
	}
	now := *e.Change.Turn
	now.Question, now.Answer, now.AnswerMetadata = r.turn.Question, r.turn.Answer, r.turn.AnswerMetadata
	a.cfg.Rules.Fill(&now, e.Fact)
	r.turn = now
	return nil
}

// writtenBy names the transactions that wrote the rows of a turn.
const writtenBy = `concat(q.xmin, ' ', a.xmin)`

// stands returns a turn with the texts that the tables have of it, and what wrote them, or nil if they don't have it.
func (a *Audit) stands(
	ctx context.Context, tables queries, t *session.Turn,
) (_ *session.Turn, by string, err error) {
	out := *t
	q, r := &events.Question{TranslateChat: t.TranslateChat}, &events.Answer{}
	err = tables.QueryRow(ctx, a.sql(`select `+writtenBy+`,
			q.pipeline_name, q.consultant, q.repository, q.question_neutral,
			q.question_translated, q.question_messages, q.metadata, a.answer_neutral, a.answer_translated,
			coalesce(a.answer_translated_is_fallback, false), a.answer_messages, a.metadata
		from {s}.questions q left join {s}.answers a using (turn_id) where q.turn_id = $1`), t.ID).Scan(
		&by, orEmpty(&q.PipelineName), orEmpty(&q.Consultant), orEmpty(&q.Repository), &q.QuestionNeutral,
		orEmpty(&q.QuestionTranslated), (*[]byte)(&q.QuestionMessages), (*[]byte)(&q.Metadata),
		orEmpty(&r.AnswerNeutral), orEmpty(&r.AnswerTranslated), &r.AnswerTranslatedIsFallback,
		(*[]byte)(&r.AnswerMessages), (*[]byte)(&out.AnswerMetadata))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, "", nil
	case err != nil:
		return nil, "", unavailable("read a turn that was extended", err)
	}
	shown(q, r)
	q.Metadata, out.AnswerMetadata = rows.FromJSONB(q.Metadata), rows.FromJSONB(out.AnswerMetadata)
	if out.Question = q; t.Final != 0 {
		out.Answer = r
	}
	return &out, by, nil
}

// correct notes the new version, and that it replaces the old one. If the link left the old version out, the new
// version stays out too.
func (p *plan) correct(e *projections.Judged) {
	t, old := e.Change.Turn, e.Change.Turns[0]
	r := p.byTurn[old.ID]
	if r == nil {
		r = p.put(e, old, untouched)
	}
	r.turn.Status, r.turn.ReplacedBy = old.Status, old.ReplacedBy
	next := p.put(e, t, copied)
	switch {
	case r.mode.whole():
		next.needs = r.needs
	case old.Place < e.Head.LinkedAt:
		next.needs = old.ID
	}
}

// redact notes the tombstones. It takes them from the redaction, so that they don't depend on which events the log
// still holds.
func (p *plan) redact(e *projections.Judged, linked bool) {
	p.takeOut(e, e.Change.Turns...)
	if !linked {
		return
	}
	for _, t := range e.Change.Turns {
		r := p.byTurn[t.ID]
		if r == nil {
			p.put(e, t, merged)
			continue
		}
		r.turn = *t
		if !r.mode.whole() || r.needs != uuid.Nil {
			r.mode, r.needs = merged, uuid.Nil
		}
	}
}

// takeOut notes that the events of turns before an event leave the log.
func (p *plan) takeOut(e *projections.Judged, turns ...*session.Turn) {
	if p.redacted == nil {
		p.redacted = map[named]*projections.Judged{}
	}
	for _, t := range turns {
		p.redacted[named{e.SessionID, t.ID}] = e
	}
}

// prune notes what is left of a turn, and the tombstones of the versions that it replaced. If the link left the turn
// out, they stay out.
func (p *plan) prune(e *projections.Judged, linked bool) {
	t := e.Change.Turn
	p.takeOut(e, append(e.Change.Turns, t)...)
	if !linked {
		return
	}
	r := p.byTurn[t.ID]
	if r == nil {
		r = p.put(e, t, merged)
		if t.Place <= e.Change.Silence {
			r.needs = t.ID
		}
	}
	if r.turn = *t; !r.mode.whole() {
		r.mode = merged
	}
	for _, old := range e.Change.Turns {
		o := p.byTurn[old.ID]
		if o == nil {
			o = p.put(e, old, merged)
			o.needs = r.needs
		}
		if o.turn = *old; !o.mode.whole() {
			o.mode, o.needs = merged, r.needs
		}
	}
}

// going returns the turns that get into the tables in one of some ways.
func (p *plan) going(ways ...writeMode) []*turnRow {
	var out []*turnRow
	for _, r := range p.turns {
		if !r.drop && slices.Contains(ways, r.mode) {
			out = append(out, r)
		}
	}
	return out
}

// answers returns the turns of some ways that have an answer.
func (p *plan) answers(ways ...writeMode) []*turnRow {
	return slices.DeleteFunc(p.going(ways...), func(r *turnRow) bool { return r.turn.FinalizedAt.IsZero() })
}

var questionTable = rows.Table[*turnRow]{Name: "questions", Key: "turn_id", Columns: []rows.Column[*turnRow]{
	rows.Col("place", "bigint", func(b *buffer, r *turnRow) { b.Bigint(r.turn.Place) }),
	rows.Col("position", "bigint", func(b *buffer, r *turnRow) { b.Bigint(r.turn.Started) }),
	rows.Col("deleted_position", "bigint", func(b *buffer, r *turnRow) { b.Seq(r.turn.Redacted) }),
	rows.Col("created_at", "timestamptz", func(b *buffer, r *turnRow) { b.Time(r.turn.CreatedAt) }),
	rows.Col("deleted_at", "timestamptz", func(b *buffer, r *turnRow) { b.Time(r.turn.DeletedAt) }),
	rows.Col("turn_id", "uuid", func(b *buffer, r *turnRow) { b.UUID(r.turn.ID) }),
	rows.Col("replaces_turn_id", "uuid", func(b *buffer, r *turnRow) { b.UUID(r.turn.Replaces) }),
	rows.Col("replaced_by_turn_id", "uuid", func(b *buffer, r *turnRow) { b.UUID(r.turn.ReplacedBy) }),
	rows.Col("record_version", "int", func(b *buffer, r *turnRow) { b.Int(r.turn.Version) }),
	rows.Col("partition", "smallint", func(b *buffer, r *turnRow) { b.Smallint(r.partition) }),
	rows.Col("created_ns", "smallint", func(b *buffer, r *turnRow) { b.Nanos(r.turn.CreatedAt) }),
	rows.Col("deleted_ns", "smallint", func(b *buffer, r *turnRow) { b.Nanos(r.turn.DeletedAt) }),
	rows.Col("translate_chat", "boolean", func(b *buffer, r *turnRow) { b.Bool(r.turn.TranslateChat) }),
	rows.Col("status_before", "text", func(b *buffer, r *turnRow) { b.Optional(r.before()) }),
	rows.Col("session_id", "text", func(b *buffer, r *turnRow) { b.Word(r.session) }),
	rows.Col("identity_id", "text", func(b *buffer, r *turnRow) { b.Word(r.identity) }),
	rows.Col("request_id", "text", func(b *buffer, r *turnRow) { b.Word(r.turn.RequestID) }),
	rows.Col("pipeline_name", "text", func(b *buffer, r *turnRow) { b.OptionalText(r.question().PipelineName) }),
	rows.Col("consultant", "text", func(b *buffer, r *turnRow) { b.OptionalText(r.question().Consultant) }),
	rows.Col("repository", "text", func(b *buffer, r *turnRow) { b.OptionalText(r.question().Repository) }),
	rows.Col("question_neutral", "text", func(b *buffer, r *turnRow) { b.Text(r.question().QuestionNeutral) }),
	rows.Col("question_translated", "text", func(b *buffer,
		r *turnRow) {
		b.OptionalText(r.question().QuestionTranslated)
	}),
	rows.Col("question_messages", "json", func(b *buffer, r *turnRow) { b.JSON(r.question().QuestionMessages) }),
	rows.Col("metadata", "jsonb", func(b *buffer, r *turnRow) { b.JSONB(r.question().Metadata) }),
	rows.ColInts("terms", func(r *turnRow) []int32 { return r.asked }),
}}

var answerTable = rows.Table[*turnRow]{Name: "answers", Key: "turn_id", Columns: []rows.Column[*turnRow]{
	rows.Col("final_position", "bigint", func(b *buffer, r *turnRow) { b.Seq(r.turn.Final) }),
	rows.Col("finalized_at", "timestamptz", func(b *buffer, r *turnRow) { b.Time(r.turn.FinalizedAt) }),
	rows.Col("turn_id", "uuid", func(b *buffer, r *turnRow) { b.UUID(r.turn.ID) }),
	rows.Col("finalized_ns", "smallint", func(b *buffer, r *turnRow) { b.Nanos(r.turn.FinalizedAt) }),
	rows.Col("answer_translated_is_fallback", "boolean", func(b *buffer,
		r *turnRow) {
		b.Bool(r.answer().AnswerTranslatedIsFallback)
	}),
	rows.Col("answer_neutral", "text", func(b *buffer, r *turnRow) {
		if r.turn.Answer == nil {
			b.Null()
		} else {
			b.Text(r.turn.Answer.AnswerNeutral)
		}
	}),
	rows.Col("answer_translated", "text", func(b *buffer, r *turnRow) { b.OptionalText(r.answer().AnswerTranslated) }),
	rows.Col("answer_messages", "json", func(b *buffer, r *turnRow) { b.JSON(r.answer().AnswerMessages) }),
	rows.Col("metadata", "jsonb", func(b *buffer, r *turnRow) { b.JSONB(r.turn.AnswerMetadata) }),
	rows.ColInts("terms", func(r *turnRow) []int32 { return r.told }),
}}

// before is the status that a redacted turn had.
func (r *turnRow) before() string {
	if r.turn.Status != session.Redacted {
		return ""
	}
	return r.turn.StatusBefore.String()
}

// index makes the terms of the texts that a plan writes.
func (a *Audit) index(ctx context.Context, q queries, p *plan) error {
	if a.withoutTerms {
		return nil
	}
	var texts []string
	if !a.lexicon.Simple() {
		for _, r := range p.turns {
			texts = append(append(texts, questionTexts(r)...), answerTexts(r)...)
		}
	}
	lexemes, err := a.lexicon.Of(ctx, q, texts...)
	if err != nil {
		return unavailable("find the lexemes of words", err)
	}
	for _, r := range p.turns {
		r.asked = a.terms(r, lexemes, questionTexts(r))
		r.told = a.terms(r, lexemes, answerTexts(r))
	}
	for i := range p.ledger {
		d := p.ledger[i].description()
		p.ledger[i].described = append(a.cfg.SearchKey.Grams(d.Title), a.cfg.SearchKey.Pairs(d.Metadata)...)
	}
	return nil
}

// terms returns the terms of a turn's texts with that of its identity, or nil where there is nothing to find.
func (a *Audit) terms(r *turnRow, lexemes words.Lexemes, texts []string) []int32 {
	terms := a.cfg.SearchKey.Terms(lexemes, texts...)
	if terms != nil {
		terms = append(terms, a.cfg.SearchKey.Owner(r.identity))
	}
	return terms
}

func questionTexts(r *turnRow) []string {
	if !r.mode.whole() {
		return nil
	}
	return []string{r.question().QuestionNeutral, r.question().QuestionTranslated}
}

func answerTexts(r *turnRow) []string {
	return []string{r.answer().AnswerNeutral, r.answer().AnswerTranslated}
}

// markTerms notes how the terms are made. Where some were made in another way, no search can rely on them any more.
func (a *Audit) markTerms(ctx context.Context) error {
	_, err := a.pool.Exec(ctx, a.sql(`update {s}.generation set search = case search when '' then $1 else 'mixed' end
		where search <> $1`), a.cfg.SearchKey.Mark(a.cfg.SearchConfig))
	return err
}

// The texts of a tombstone.
var (
	noQuestion events.Question
	noAnswer   events.Answer
)

func (r *turnRow) question() *events.Question { return cmp.Or(r.turn.Question, &noQuestion) }

func (r *turnRow) answer() *events.Answer { return cmp.Or(r.turn.Answer, &noAnswer) }
