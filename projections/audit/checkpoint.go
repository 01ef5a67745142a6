package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

const checkpointColumns = `partition, coalesce(stream_created_ns, 0), seq, event_id, epoch,
	(select store from {s}.generation), (select number from {s}.generation)`

func scanCheckpoint(row pgx.CollectableRow) (c projections.Checkpoint, err error) {
	var created int64
	var id []byte
	err = row.Scan(&c.Partition, &created, &c.Seq, &id, &c.Epoch, &c.Store, &c.Generation)
	if created != 0 {
		c.Created = time.Unix(0, created).UTC()
	}
	c.EventID = string(id)
	return c, err
}

// Claim implements projections.Projection. It waits for a running transaction of the former runner; the server ends a
// transaction that is idle for 15 s between two statements. Missing tables are made again.
func (a *Audit) Claim(ctx context.Context, partition int) (c projections.Checkpoint, err error) {
	err = a.mended(ctx, func() error {
		found, _ := a.pool.Query(ctx, a.sql(`insert into {s}.projection_checkpoints as c
				(projection, partition, seq, event_id, epoch) values ($1, $2, 0, '', 1)
			on conflict (projection, partition) do update set epoch = c.epoch + 1
			returning `+checkpointColumns), Name, partition)
		if c, err = pgx.CollectExactlyOneRow(found, scanCheckpoint); err == nil {
			err = a.markTerms(ctx)
		}
		return err
	})
	if err != nil {
		return projections.Checkpoint{}, failure("claim a partition for the audit", err)
	}
	a.early[partition].Store(newUnlinked(a.cfg.Rules))
	return c, nil
}

// mended runs ask. If the tables are missing, it makes them and runs ask again: a lost database comes back empty, and
// the runners must see that it has to be filled. A process that only reads makes no tables.
func (a *Audit) mended(ctx context.Context, ask func() error) error {
	err := ask()
	if !gone(err) || !a.mends.Load() {
		return err
	}
	if err := a.makeTables(ctx); err != nil {
		return err
	}
	return ask()
}

// Applied returns the position up to which the tables hold a partition; sequence 0 before the first event.
func (a *Audit) Applied(ctx context.Context, partition int) (events.Position, error) {
	at := events.Position{Partition: partition}
	err := a.pool.QueryRow(ctx, a.sql(`select coalesce((`+appliedOf+`), 0)`), Name, partition).Scan(&at.Seq)
	return at, unavailable("read the audit's position", err)
}

// readAt runs do in a transaction that reads, and returns the position of each partition in that transaction. Another
// one may be answered by a server that is further behind.
func (a *Audit) readAt(ctx context.Context, do func(pgx.Tx) error) (at []events.Position, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, a.sql(`select partition, seq from {s}.projection_checkpoints where projection = $1
			order by partition`), Name)
		if at, err = pgx.CollectRows(found, pgx.RowToStructByPos[events.Position]); err != nil {
			return err
		}
		return do(tx)
	})
	return at, err
}

const appliedOf = `select seq from {s}.projection_checkpoints where projection = $1 and partition = $2`

// Served implements projections.View.
func (a *Audit) Served(ctx context.Context) (out projections.Served, err error) {
	err = a.mended(ctx, func() error {
		return pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, a.sql(`select store, number from {s}.generation`)).Scan(&out.Store, &out.Generation)
			if err != nil {
				return err
			}
			found, _ := tx.Query(ctx, a.sql(`select `+checkpointColumns+` from {s}.projection_checkpoints
				where projection = $1 order by partition`), Name)
			out.At, err = pgx.CollectRows(found, scanCheckpoint)
			return err
		})
	})
	if err != nil {
		return projections.Served{}, unavailable("read the audit's checkpoints", err)
	}
	return out, nil
}

// inTx runs do in a transaction that moves the checkpoint from b.From to b.To. It fails with ErrFenced if the stored
// checkpoint is not b.From. The checkpoint's row is written first: its lock keeps out another runner, and makes Claim
// wait, until the end.
func (a *Audit) inTx(ctx context.Context, b projections.Batch, do func(pgx.Tx) error) error {
	var created *int64
	if !b.To.Created.IsZero() {
		created = new(b.To.Created.UnixNano())
	}
	return pgx.BeginTxFunc(ctx, a.pool, a.writing(), func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, a.sql(`update {s}.projection_checkpoints
			set stream_created_ns = $5, seq = $6, event_id = $7, applied_at = now()
			where projection = $1 and partition = $2 and seq = $3 and epoch = $4`),
			Name, b.From.Partition, b.From.Seq, b.From.Epoch, created, b.To.Seq, []byte(b.To.EventID))
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return projections.ErrFenced
		}
		return do(tx)
	})
}
