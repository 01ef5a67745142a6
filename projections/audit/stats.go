package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// Counts counts turns of all sessions, from the ledger. It returns the position of each partition at which the tables
// were read, and at most MostCounts+1 buckets. Erased sessions, and those of erased identities, are left out.
//
// Errors: ErrUnavailable.
func (a *Audit) Counts(
	ctx context.Context, f projections.CountsFilter,
) (counts []projections.Counts, at []events.Position, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
		if err := a.filledBy(ctx, tx, statsFill); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, byScan); err != nil {
			return err
		}
		found, _ := tx.Query(ctx, a.sql(`select partition, seq from {s}.projection_checkpoints where projection = $1
			order by partition`), Name)
		if at, err = pgx.CollectRows(found, pgx.RowToStructByPos[events.Position]); err != nil {
			return err
		}
		unit := "day"
		if f.Hour {
			unit = "hour"
		}
		found, _ = tx.Query(ctx, a.sql(countTurns), pgx.NamedArgs{
			"unit": unit, "by": string(f.By), "since": micros(f.Since), "until": micros(f.Until),
			"limit": projections.MostCounts + 1,
		})
		counts, err = pgx.CollectRows(found, scanCounts)
		return err
	})
	if err != nil {
		return nil, nil, unavailable("count turns", err)
	}
	return counts, at, nil
}

// byScan lets the planner read a large part of a table as a whole, which an index would be slower for.
const byScan = `set local enable_seqscan = on; set local enable_hashjoin = on; set local work_mem = '64MB'`

// countTurns puts together what the events of each turn did, and then counts. docs/analysts.md has it for readers of the
// tables.
const countTurns = `with turns as (
		select min(session_id) as session_id, min(started_at) as started_at,
			min(case @by when 'pipeline_name' then pipeline_name when 'consultant' then consultant
				when 'repository' then repository end) as by,
			bool_or(did = 'redacted') as redacted, bool_or(did = 'corrected') as corrected,
			bool_or(did in ('answered', 'recorded')) as answered,
			min(1000 * extract(epoch from recorded_at - started_at)::float8) filter (where did = 'answered') as answer_ms
		from {s}.event_ledger where started_at >= @since and started_at < @until group by partition, place)
	select date_trunc(@unit, started_at at time zone 'UTC') as start, by, count(*),
		count(*) filter (where answered and not redacted), count(*) filter (where redacted),
		count(*) filter (where corrected and not redacted), count(*) filter (where not answered and not redacted),
		count(distinct session_id), count(distinct s.identity_id),
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
