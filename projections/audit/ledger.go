package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// record notes an event for the ledger and the security table. It leaves out an event that names a turn after the
// turn's redaction or repeats one from before its prune, or a session after its erasure, since such an event is erased
// from the log; and a description that does not count. A summary has no row, since it leaves the log whenever one of
// its turns changes.
func (p *plan) record(e *projections.Judged) {
	row := ledgerRow{e: e}
	row.turn, row.replaces = session.Named(e.Recorded)
	kind := e.Change.Kind
	if kind == session.Refused || kind == session.Anomaly {
		p.security = append(p.security, row)
	}
	afterErasure := e.Head.Erased != 0 && e.Head.Erased != e.Position.Seq && kind != session.Noted
	gone := e.Change.Reason == session.CodeTurnRedacted || e.Change.Reason == session.CodeTurnPruned
	afterRedaction := kind == session.Anomaly && gone ||
		kind == session.Duplicate && e.Change.Turn != nil && e.Change.Turn.Redacted != 0
	summary := e.Type == events.TypeSessionSummarized
	if !afterErasure && !afterRedaction && !e.VoidDescription() && !summary {
		p.ledger = append(p.ledger, row)
	}
}

// named is a turn that a fact of its own session names.
type named struct {
	session string
	turn    uuid.UUID
}

// settle removes rows that a later event of the same batch erases.
func (p *plan) settle() {
	if p.erased == nil && p.redacted == nil && p.described == nil {
		return
	}
	for _, r := range p.turns {
		r.drop = p.erased[r.session] != nil
	}
	p.ledger = slices.DeleteFunc(p.ledger, p.takenOut)
}

// takenOut reports whether a later redaction, erasure or description removes an event from the log.
func (p *plan) takenOut(l ledgerRow) bool {
	sessionID, seq := l.e.SessionID, l.e.Position.Seq
	for _, turn := range []uuid.UUID{l.turn, l.replaces} {
		if by := p.redacted[named{sessionID, turn}]; by != nil && seq < by.Position.Seq {
			return true
		}
	}
	if by := p.described[sessionID]; by != nil && l.e.Type == by.Type && seq < by.Position.Seq {
		return true
	}
	if l.e.Type == events.TypeSessionBranched && l.e.Change.Kind != session.Anomaly {
		return false // a mark outlives its session
	}
	by := p.erased[sessionID]
	return by != nil && seq < by.Position.Seq && seq != by.Head.LinkedAt
}

// ledgerRow is an event with the turns that its fact names, and the terms of the description that it gave its session.
type ledgerRow struct {
	e              *projections.Judged
	turn, replaces uuid.UUID
	described      []int32
}

var ledgerTable = rows.Table[ledgerRow]{Name: "event_ledger", Columns: []rows.Column[ledgerRow]{
	rows.Col("seq", "bigint", func(b *buffer, l ledgerRow) { b.Bigint(l.e.Position.Seq) }),
	rows.Col("recorded_at", "timestamptz", func(b *buffer, l ledgerRow) { b.Time(l.e.Time) }),
	rows.Col("turn_id", "uuid", func(b *buffer, l ledgerRow) { b.UUID(l.turn) }),
	rows.Col("replaces_turn_id", "uuid", func(b *buffer, l ledgerRow) { b.UUID(l.replaces) }),
	rows.Col("partition", "smallint", func(b *buffer, l ledgerRow) { b.Smallint(l.e.Position.Partition) }),
	rows.Col("event_id", "text", func(b *buffer, l ledgerRow) { b.Word(projections.Label(l.e.ID)) }),
	rows.Col("type", "text", func(b *buffer, l ledgerRow) { b.Word(projections.Label(l.e.Type)) }),
	rows.Col("session_id", "text", func(b *buffer, l ledgerRow) { b.Optional(knownID(l.e.SessionID)) }),
	rows.Col("identity_id", "text", func(b *buffer, l ledgerRow) { b.Optional(l.identity()) }),
	rows.Col("place", "bigint", func(b *buffer, l ledgerRow) { b.Seq(l.changed().Place) }),
	rows.Col("started_at", "timestamptz", func(b *buffer, l ledgerRow) { b.Time(l.changed().CreatedAt) }),
	rows.Col("did", "text", func(b *buffer, l ledgerRow) { b.Optional(l.did()) }),
	rows.Col("pipeline_name", "text", func(b *buffer, l ledgerRow) { b.OptionalText(l.opened().PipelineName) }),
	rows.Col("consultant", "text", func(b *buffer, l ledgerRow) { b.OptionalText(l.opened().Consultant) }),
	rows.Col("repository", "text", func(b *buffer, l ledgerRow) { b.OptionalText(l.opened().Repository) }),
	rows.ColInts("description_terms", func(l ledgerRow) []int32 { return l.described }),
}}

// did says what the event did to a turn, and "" if it did nothing to one.
func (l ledgerRow) did() string {
	c := &l.e.Change
	switch c.Kind.Group() {
	case session.GroupText:
		if events.TextsOf(l.e.Fact).Extension != nil {
			return ""
		}
		// An answer that came in one append with its question took no time.
		if before, _, _ := l.e.Append(); c.Kind == session.Answered && c.Turn.Started >= l.e.Position.Seq-before {
			return session.Recorded.String()
		}
		return c.Kind.String()
	case session.GroupGone:
		// The events that started and answered a pruned turn have no row any more.
		if t := c.Left(); t != nil && t.Status == session.Pending {
			return session.Started.String()
		}
		if c.Left() != nil || len(c.Turns) > 0 {
			return c.Kind.String()
		}
	case session.GroupNone, session.GroupHead, session.GroupSessionGone:
	}
	return ""
}

// changed returns the turn that the event did something to, or an empty one.
func (l ledgerRow) changed() *session.Turn {
	switch c := &l.e.Change; {
	case l.did() == "":
		return &noTurn
	case c.Kind.Group() == session.GroupGone && c.Left() == nil:
		return c.Turns[0]
	default:
		return c.Turn
	}
}

var noTurn session.Turn

// description returns the description that the event gave its session, or an empty one.
func (l ledgerRow) description() *events.SessionDescribed {
	if f, described := l.e.Fact.(*events.SessionDescribed); described && l.e.Change.Kind == session.Described {
		return f
	}
	return &events.SessionDescribed{}
}

// opened returns the question that the event opened a turn with, or an empty one.
func (l ledgerRow) opened() *events.Question {
	q := events.TextsOf(l.e.Fact).Question
	if q == nil || l.did() == "" || l.e.Change.Turn.Corrects() && l.e.Change.Left() == nil {
		return &noQuestion
	}
	return q
}

// identity is the one that the event belongs to.
func (l ledgerRow) identity() string {
	if l.e.SessionID != "" {
		return l.e.Head.Identity
	}
	return knownID(l.e.IdentityID)
}

// securityTable holds the refused links and the anomalies. identity_id is the identity that asked for the session.
var securityTable = rows.Table[ledgerRow]{Name: "security_events", Columns: append(
	ledgerTable.Only("seq", "recorded_at", "turn_id", "partition", "event_id", "type", "session_id").Columns,
	rows.Col("kind", "text", func(b *buffer, l ledgerRow) { b.Word(l.e.Change.Kind.String()) }),
	rows.Col("reason", "text", func(b *buffer, l ledgerRow) { b.Word(l.reason()) }),
	rows.Col("identity_id", "text", func(b *buffer, l ledgerRow) { b.Optional(knownID(l.asker())) }),
	rows.Col("source_hash", "text", func(b *buffer, l ledgerRow) { b.Optional(l.source()) }),
)}

func (l ledgerRow) reason() string {
	if l.e.Change.Kind == session.Refused {
		return session.CodeLinkedElsewhere
	}
	return projections.Label(l.e.Change.Reason)
}

// asker is the identity that asked for a session.
func (l ledgerRow) asker() string {
	if f, refused := l.e.Fact.(*events.LinkRefused); refused {
		return f.IdentityID
	}
	if f, linked := l.e.Fact.(*events.SessionLinked); linked {
		return f.IdentityID
	}
	return l.e.IdentityID
}

// source returns where a refused link came from.
func (l ledgerRow) source() string {
	if f, refused := l.e.Fact.(*events.LinkRefused); refused {
		return projections.Label(f.SourceHash)
	}
	return ""
}

// knownID returns an id, or "" if the id breaks the rules for ids, which only happens in events that state no fact.
func knownID(id string) string {
	if events.ValidID(id) != nil {
		return ""
	}
	return id
}

// Counts counts turns of all sessions, from the ledger. It returns the position of each partition at which the tables
// were read, and at most MostCounts+1 buckets. Erased sessions, and those of erased identities, are left out.
//
// Errors: ErrUnavailable.
func (a *Audit) Counts(
	ctx context.Context, f projections.CountsFilter,
) (counts []projections.Counts, at []events.Position, err error) {
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, byScan); err != nil {
			return err
		}
		found, _ := tx.Query(ctx, a.sql(countTurns), countArgs(f))
		counts, err = pgx.CollectRows(found, scanCounts)
		return err
	})
	if err != nil {
		return nil, nil, unavailable("count turns", err)
	}
	return counts, at, nil
}

// Anomalies counts the events that had no effect, by the time at which they were recorded, in the filter's buckets. It
// returns at most MostCounts+1 counts, and the position of each partition at which the tables were read.
//
// Errors: ErrUnavailable.
func (a *Audit) Anomalies(
	ctx context.Context, f projections.CountsFilter,
) (counts []projections.Anomalies, at []events.Position, err error) {
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, a.sql(countAnomalies), countArgs(f))
		counts, err = pgx.CollectRows(found, pgx.RowToStructByPos[projections.Anomalies])
		return err
	})
	if err != nil {
		return nil, nil, unavailable("count anomalies", err)
	}
	return counts, at, nil
}

const countAnomalies = `select date_trunc(@unit, recorded_at at time zone 'UTC') as start, reason, count(*)
	from {s}.security_events where recorded_at >= @since and recorded_at < @until
	group by 1, 2 order by 1, 2 limit @limit`

func countArgs(f projections.CountsFilter) pgx.NamedArgs {
	unit := "day"
	if f.Hour {
		unit = "hour"
	}
	return pgx.NamedArgs{
		"unit": unit, "by": string(f.By), "since": micros(f.Since), "until": micros(f.Until),
		"limit": projections.MostCounts + 1,
	}
}

// byScan lets the planner read a large part of a table as a whole, which an index would be slower for. Before the first
// ANALYZE of a table the planner expects one row and would compare each turn with each session.
const byScan = `set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_nestloop = off;
	set local work_mem = '64MB'`

// countTurns puts together what the events of each turn did, and then counts. docs/analysts.md has it for readers of
// the tables.
const countTurns = `with turns as (
		select min(session_id) as session_id, min(started_at) as started_at,
			min(case @by when 'pipeline_name' then pipeline_name when 'consultant' then consultant
				when 'repository' then repository end) as by,
			bool_or(did = 'redacted') as redacted, bool_or(did = 'corrected') as corrected,
			bool_or(did in ('answered', 'recorded', 'pruned')) as answered,
			min(1000 * extract(epoch from recorded_at - started_at)::float8)
				filter (where did = 'answered') as answer_ms
		from {s}.event_ledger where started_at >= @since and started_at < @until group by partition, place)
	select date_trunc(@unit, started_at at time zone 'UTC') as start, by, count(*),
		count(*) filter (where answered and not redacted), count(*) filter (where redacted),
		count(*) filter (where corrected and not redacted), count(*) filter (where not answered and not redacted),
		count(distinct session_id), count(distinct s.identity_id) filter (where not exists (
			select from {s}.sessions r where r.session_id = s.fork_root and r.erased_position is not null)),
		round((percentile_cont(0.5) within group (order by answer_ms) filter (where not redacted))::numeric, 3)::float8,
		round((percentile_cont(0.95) within group (order by answer_ms) filter (where not redacted))::numeric, 3)::float8
	from turns join {s}.sessions s using (session_id)
	where s.erased_position is null and not exists (select from {s}.event_ledger l
		where l.identity_id = s.identity_id and l.type = 'turnledger.identity.erased.v1')
	group by 1, 2 order by 1, 2 limit @limit`

func scanCounts(row pgx.CollectableRow) (c projections.Counts, err error) {
	err = row.Scan(&c.Start, &c.By, &c.Started, &c.Finalized, &c.Redacted, &c.Corrected, &c.Pending, &c.Sessions,
		&c.Identities, &c.AnswerP50, &c.AnswerP95)
	if err != nil {
		return c, fmt.Errorf("a row of the counts: %w", err)
	}
	if c.By != nil {
		*c.By = rows.FromText(*c.By)
	}
	return c, nil
}
