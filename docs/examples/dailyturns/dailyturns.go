// Package dailyturns counts the turns of each day in PostgreSQL (tables.sql).
package dailyturns

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// DailyTurns implements projections.Projection.
type DailyTurns struct{ Pool *pgxpool.Pool }

// Name of the projection.
func (DailyTurns) Name() string { return "dailyturns" }

// Claim takes a partition over.
func (d DailyTurns) Claim(ctx context.Context, k int) (projections.Checkpoint, error) {
	at, created, id := projections.Checkpoint{Partition: k}, int64(0), []byte(nil)
	err := d.Pool.QueryRow(ctx, `insert into daily_checkpoints as c values ($1, 0, 0, '', 1)
		on conflict (partition) do update set epoch = c.epoch + 1 returning created, seq, event_id, epoch`, k).
		Scan(&created, &at.Seq, &id, &at.Epoch)
	at.Created, at.EventID = time.Unix(0, created), string(id)
	return at, err
}

// Apply counts the turns that began and moves the checkpoint with them, unless another runner has come further.
func (d DailyTurns) Apply(ctx context.Context, b projections.Batch) error {
	rows := &pgx.Batch{}
	for _, e := range b.Events {
		if k := e.Change.Kind; k == session.Started || k == session.Recorded { // a whole turn has no start of its own
			rows.Queue(`insert into daily_turns as t values ($1, 1)
				on conflict (day) do update set turns = t.turns + 1`, e.Time.UTC())
		}
	}
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `update daily_checkpoints set created = $4, seq = $5, event_id = $6
			where partition = $1 and seq = $2 and epoch = $3`,
			b.From.Partition, b.From.Seq, b.From.Epoch, b.To.Created.UnixNano(), b.To.Seq, []byte(b.To.EventID))
		if err != nil || done.RowsAffected() == 0 {
			return cmp.Or(err, projections.ErrFenced)
		}
		return tx.SendBatch(ctx, rows).Close()
	})
}

// Applied returns how far the rows are.
func (d DailyTurns) Applied(ctx context.Context, k int) (events.Position, error) {
	at := events.Position{Partition: k}
	err := d.Pool.QueryRow(ctx, `select coalesce(max(seq), 0) from daily_checkpoints where partition = $1`, k).
		Scan(&at.Seq)
	return at, err
}
