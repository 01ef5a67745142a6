package audit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// Claim implements projections.Projection. It waits for a transaction of the former runner that is under way; one that stands
// still between two statements is broken off after 15 s. Tables that are gone are made again.
func (a *Audit) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	c := projections.Checkpoint{Partition: partition}
	var created *int64
	var id []byte
	err := a.mended(ctx, func() error {
		row := a.pool.QueryRow(ctx, a.sql.claim, projection, partition)
		return row.Scan(&created, &c.Seq, &id, &c.Epoch, &c.Store, &c.Generation)
	})
	if err != nil {
		return projections.Checkpoint{}, failure("claim a partition for the audit", err)
	}
	if created != nil {
		c.Created = time.Unix(0, *created).UTC()
	}
	c.EventID = string(id)
	a.early.begin(partition, a.cfg.Rules)
	return c, nil
}

// mended asks once more after the tables were made again, where they are gone: a database that was lost comes back
// empty, and the runners have to see that it is to be filled. A process that only looks at the tables makes none.
func (a *Audit) mended(ctx context.Context, ask func() error) error {
	err := ask()
	if !gone(err) || !a.mends.Load() {
		return err
	}
	if err := a.migrate(ctx); err != nil {
		return err
	}
	return ask()
}

// Applied returns the position up to which the tables hold a partition; sequence 0 before the first event.
func (a *Audit) Applied(ctx context.Context, partition int) (events.Position, error) {
	at := events.Position{Partition: partition}
	err := a.pool.QueryRow(ctx, a.sql.applied, projection, partition).Scan(&at.Seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return at, nil
	}
	return at, unavailable("read the audit's position", err)
}

// inTx runs do in a transaction that ends with b.To as the checkpoint, if the stored one is b.From; else ErrFenced. The
// checkpoint's row goes first: its lock keeps another runner out, and Claim waiting, until the end.
func (a *Audit) inTx(ctx context.Context, b projections.Batch, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.begin}, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, a.sql.fence, projection, b.From.Partition, b.From.Seq, b.From.Epoch, unixNano(b.To.Created), b.To.Seq, []byte(b.To.EventID))
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return projections.ErrFenced
		}
		return do(tx)
	})
}

func unixNano(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func orNull[T comparable](v, none T) *T {
	if v == none {
		return nil
	}
	return &v
}
