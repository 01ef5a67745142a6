package audit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// Restore implements projections.View. It plans the session's events as if they came in one batch, and overwrites the
// existing rows. Afterwards all rows are as if the parked event had never been parked. The session's other dead letters
// stay out, and are not settled. The lock on the checkpoint's row keeps batches out meanwhile; the checkpoint does not
// change. Errors: ErrUnavailable, and those of the log.
func (a *Audit) Restore(ctx context.Context, s projections.Session) (settled []events.Position, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, a.writing(), func(tx pgx.Tx) error {
		stands := projections.Checkpoint{Partition: s.Partition}
		err := tx.QueryRow(ctx, a.sql(appliedOf+" for update"), Name, s.Partition).Scan(&stands.Seq)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return failure("lock the checkpoint", err)
		}
		var wentOn bool
		err = tx.QueryRow(ctx, a.sql(`select exists (select from {s}.event_ledger
			where partition = $1 and session_id = nullif($2, '') and seq > $3)`),
			s.Partition, knownID(s.ID), s.UpTo).Scan(&wentOn)
		if err != nil {
			return failure("look for later events of the session", err)
		}
		if stands.Seq < s.UpTo || wentOn {
			return nil
		}
		settled = []events.Position{s.Letter}
		return a.rewrite(ctx, tx, projections.Batch{From: stands, To: stands, Events: s.Events})
	})
	if err != nil {
		return nil, failure("restore a session of the audit", err)
	}
	return settled, nil
}

// rewrite writes the rows of events again, over the rows that exist.
func (a *Audit) rewrite(ctx context.Context, tx pgx.Tx, b projections.Batch) error {
	p, err := a.plan(ctx, nil, b, nil)
	if err == nil {
		err = a.index(ctx, tx, p)
	}
	if err != nil {
		return err
	}
	empty := func(table string, of []ledgerRow) {
		var seqs []uint64
		for _, l := range of {
			seqs = append(seqs, l.e.Position.Seq)
		}
		if err == nil {
			_, err = tx.Exec(ctx, a.sql("delete from {s}."+table+" where partition = $1 and seq = any($2)"),
				b.From.Partition, seqs)
		}
	}
	empty("event_ledger", p.ledger)
	empty("security_events", p.security)
	if err == nil {
		err = a.overwrite(ctx, tx, p)
	}
	return failure("apply again to the audit", err)
}
