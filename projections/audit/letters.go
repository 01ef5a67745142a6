package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

var _ projections.DeadLetterQueue = (*Audit)(nil)

// Park implements projections.Projection. Parking an event again counts the attempt.
func (a *Audit) Park(ctx context.Context, b projections.Batch, reason string) error {
	if len(b.Events) != 1 {
		return fmt.Errorf("park in the audit: %d events in the batch, not one", len(b.Events))
	}
	e := &b.Events[0]
	// Whether the letter is retried before a link comes, and where, is not known here: a link reads that session from the log.
	a.early.in(b.From.Partition).forget(e.SessionID)
	turn, _ := conversation.Named(e.Recorded)
	err := a.inTx(ctx, b, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, a.sql.park, projection, e.Position.Partition, e.Position.Seq, e.Time, orNull(turn, uuid.Nil), projections.Label(e.ID), projections.Label(e.Type),
			orNull(knownID(e.SessionID), ""), orNull(knownID(e.IdentityID), ""), projections.BoundReason(reason))
		return err
	})
	return failure("park an event of the audit", err)
}

// DeadLetters implements projections.DeadLetterQueue. Errors: ErrUnavailable.
func (a *Audit) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	letters, err := collectLetters(a.pool.Query(ctx, a.sql.letters, projection, projections.MaxDeadLetters))
	return letters, unavailable("read the audit's dead letters", err)
}

// DropDeadLetter implements projections.DeadLetterQueue. Errors: ErrUnavailable, projections.ErrNoDeadLetter.
func (a *Audit) DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	return oneLetter(a.pool.Query(ctx, a.sql.dropLetter, projection, at.Partition, at.Seq, d.At,
		projections.BoundReason(d.By), projections.BoundReason(d.Reason)))
}

// RetryDeadLetter implements projections.DeadLetterQueue. The events of the session, as the log has them up to the checkpoint,
// go through the plan as they would in one batch, and are written over what stands: all rows that the parked event should have
// made or changed are then as if it had never been parked. The session's other dead letters stay out. The checkpoint's row is
// locked meanwhile, so that no batch comes between, and is where it was afterwards.
//
// Errors: ErrUnavailable, projections.ErrNoDeadLetter, and those of the log.
func (a *Audit) RetryDeadLetter(ctx context.Context, at events.Position) (projections.Retried, error) {
	var letter projections.DeadLetter
	err := pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.begin}, func(tx pgx.Tx) (err error) {
		stands := projections.Checkpoint{Partition: at.Partition}
		err = tx.QueryRow(ctx, a.sql.lock, projection, at.Partition).Scan(&stands.Seq)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return failure("retry a dead letter of the audit", err)
		}
		if letter, err = oneLetter(tx.Query(ctx, a.sql.takeLetter, projection, at.Partition, at.Seq)); err != nil {
			return err
		}
		return a.again(ctx, tx, letter, stands)
	})
	switch {
	case err == nil:
		return projections.Retried{DeadLetter: letter, Applied: true}, nil
	case !projections.IsPermanent(err):
		return projections.Retried{}, fmt.Errorf("retry %s in the audit: %w", at, err)
	}
	letter, err = oneLetter(a.pool.Query(ctx, a.sql.refuseLetter, projection, at.Partition, at.Seq, projections.BoundReason(err.Error())))
	return projections.Retried{DeadLetter: letter}, err
}

// again writes what a letter's session is, or the one event where it is on no session's subject.
func (a *Audit) again(ctx context.Context, tx pgx.Tx, letter projections.DeadLetter, stands projections.Checkpoint) error {
	if a.cfg.Log == nil {
		return errors.New("nothing is configured to read the log with (Config.Log)")
	}
	found, err := tx.Query(ctx, a.sql.otherLetters, projection, stands.Partition, letter.SessionID)
	if err != nil {
		return failure("read the session's other dead letters", err)
	}
	others, err := pgx.CollectRows(found, pgx.RowTo[uint64])
	if err != nil {
		return failure("read the session's other dead letters", err)
	}
	b := projections.Batch{From: stands, To: stands}
	judge := projections.NewJudge(a.cfg.Log, a.cfg.Rules, stands.Seq)
	err = a.events(ctx, letter, stands.Seq, func(e events.Recorded) error {
		judged, err := judge.Judge(ctx, e)
		if err == nil && !slices.Contains(others, e.Position.Seq) {
			b.Events = append(b.Events, judged)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the log again: %w", err)
	}
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
	if _, err := tx.Exec(ctx, a.sql.clearLedgerOf, stands.Partition, ledger); err != nil {
		return failure("clear the ledger", err)
	}
	if _, err := tx.Exec(ctx, a.sql.clearSecurityOf, stands.Partition, security); err != nil {
		return failure("clear the security events", err)
	}
	return failure("apply again to the audit", a.overwrite(ctx, tx, b, p))
}

// events gives those that a retry takes in.
func (a *Audit) events(ctx context.Context, letter projections.DeadLetter, upTo uint64, take func(events.Recorded) error) error {
	if letter.SessionID == "" {
		e, found, err := a.cfg.Log.At(ctx, letter.Position)
		if err != nil || !found {
			return err
		}
		return take(e)
	}
	for e, err := range a.cfg.Log.Session(ctx, letter.SessionID, 0, upTo) {
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// letterColumns in the order in which a row is read.
const letterColumns = `partition, seq, event_id, type, session_id, reason, attempts, parked_at, dropped_at, dropped_by, drop_reason`

func oneLetter(found pgx.Rows, err error) (projections.DeadLetter, error) {
	letters, err := collectLetters(found, err)
	switch {
	case err != nil:
		return projections.DeadLetter{}, unavailable("look at a dead letter of the audit", err)
	case len(letters) == 0:
		return projections.DeadLetter{}, projections.ErrNoDeadLetter
	}
	return letters[0], nil
}

func collectLetters(found pgx.Rows, err error) ([]projections.DeadLetter, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (projections.DeadLetter, error) {
		l := projections.DeadLetter{Projection: projection}
		var session, by, why *string
		var at *time.Time
		err := row.Scan(&l.Position.Partition, &l.Position.Seq, &l.EventID, &l.Type, &session, &l.Reason, &l.Attempts, &l.ParkedAt, &at, &by, &why)
		l.SessionID, l.ParkedAt = zeroIfNull(session), l.ParkedAt.UTC()
		if at != nil {
			l.Dropped = &projections.Drop{Reason: zeroIfNull(why), By: zeroIfNull(by), At: at.UTC()}
		}
		return l, err
	})
}
