package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// Restore implements projections.View. The events of the session go through the plan as they would in one batch, and
// are written over what stands: all rows that the parked event should have made or changed are then as if it had never
// been parked. The session's other dead letters stay out, and are not settled. The checkpoint's row is locked
// meanwhile, so that no batch comes between, and is where it was afterwards. Errors: ErrUnavailable, and those of the
// log.
func (a *Audit) Restore(ctx context.Context, s projections.Session) (settled []events.Position, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.begin}, func(tx pgx.Tx) error {
		stands := projections.Checkpoint{Partition: s.Partition}
		err := tx.QueryRow(ctx, a.sql.lock, projection, s.Partition).Scan(&stands.Seq)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return failure("lock the checkpoint", err)
		}
		var wentOn bool
		err = tx.QueryRow(ctx, a.sql.wentOn, s.Partition, orNull(knownID(s.ID), ""), s.UpTo).Scan(&wentOn)
		if err != nil {
			return failure("look for later events of the session", err)
		}
		if stands.Seq < s.UpTo || wentOn {
			return nil
		}
		settled = []events.Position{s.Letter}
		return a.rewrite(ctx, tx, projections.Batch{From: stands, To: stands, Events: s.Events})
	})
	switch {
	case err == nil:
		return settled, nil
	case projections.IsPermanent(err), errors.Is(err, ErrUnavailable):
		return nil, err
	default:
		return nil, failure("restore a session of the audit", err)
	}
}

// rewrite writes events over what stands of them.
func (a *Audit) rewrite(ctx context.Context, tx pgx.Tx, b projections.Batch) error {
	p, err := a.plan(ctx, b, nil)
	if err != nil {
		return err
	}
	var ledger, security []uint64
	for _, l := range p.ledger {
		ledger = append(ledger, l.e.Position.Seq)
	}
	for _, s := range p.security {
		security = append(security, s.e.Position.Seq)
	}
	if _, err := tx.Exec(ctx, a.sql.clearLedgerOf, b.From.Partition, ledger); err != nil {
		return failure("clear the ledger", err)
	}
	if _, err := tx.Exec(ctx, a.sql.clearSecurityOf, b.From.Partition, security); err != nil {
		return failure("clear the security events", err)
	}
	return failure("apply again to the audit", a.overwrite(ctx, tx, b, p))
}

// Carry hands over the dead letters of a partition that a version before kept in the tables, and forgets those that
// were kept.
func (a *Audit) Carry(ctx context.Context, partition int, keep projections.Keep) error {
	found, err := a.pool.Query(ctx, a.sql.formerLetters, projection, partition)
	if err != nil {
		return unavailable("read the audit's former dead letters", err)
	}
	letters, err := pgx.CollectRows(found, formerLetter)
	if err != nil {
		return unavailable("read the audit's former dead letters", err)
	}
	for _, l := range letters {
		if err := keep(ctx, l); err != nil {
			return fmt.Errorf("carry over the audit's dead letters: %w", err)
		}
		if _, err := a.pool.Exec(ctx, a.sql.forgetLetter, projection, partition, l.Position.Seq); err != nil {
			return unavailable("forget a former dead letter", err)
		}
	}
	return nil
}

func formerLetter(row pgx.CollectableRow) (projections.DeadLetter, error) {
	l := projections.DeadLetter{Projection: projection}
	var session, by, why *string
	var at *time.Time
	err := row.Scan(&l.Position.Partition, &l.Position.Seq, &l.EventID, &l.Type, &session, &l.Reason, &l.Attempts,
		&l.ParkedAt, &at, &by, &why)
	l.SessionID, l.ParkedAt = zeroIfNull(session), l.ParkedAt.UTC()
	if at != nil {
		l.Dropped = &projections.Drop{Reason: zeroIfNull(why), By: zeroIfNull(by), At: at.UTC()}
	}
	return l, err
}
