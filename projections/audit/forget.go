package audit

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// ErrNotYet says that somebody may have read from the log what is to be forgotten, and could bring it back: a rebuild or a
// verification, or who feeds tables that are not that far.
var ErrNotYet = projections.NotYet(errors.New(
	"the audit is being rebuilt or verified, or has not applied yet what is to be forgotten; that waits for it"))

// ForgetEvent takes the ledger's row of an event out that has left the log by itself. Who
// has read it and not applied it has to claim the partition anew, and finds it no more.
// ErrUnavailable where PostgreSQL does not answer, ErrNotYet until tables beside the
// served ones are served or gone.
func (a *Audit) ForgetEvent(ctx context.Context, at events.Position) error {
	return a.whileNoneFill(ctx, "forget an event of the audit", func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, a.sql.fenceBefore, projection, at.Partition, at.Seq)
		if err == nil {
			_, err = conn.Exec(ctx, a.sql.clearLedgerOf, at.Partition, []uint64{at.Seq})
		}
		return err
	})
}

// ForgetEvents takes the ledger's rows of some events of a partition out that a retention
// is to take out of the log, and then has it do so. Errors are those of ForgetEvent,
// ErrNotYet also until the tables have applied all of them, and purge's.
func (a *Audit) ForgetEvents(ctx context.Context, partition int, seqs []uint64, purge func(context.Context) error) error {
	var purged error
	err := a.whileNoneFill(ctx, "forget events of the audit", func(conn *pgxpool.Conn) error {
		var applied uint64
		if err := conn.QueryRow(ctx, "select coalesce(("+a.sql.applied+"), 0)", projection, partition).Scan(&applied); err != nil {
			return err
		}
		if applied < slices.Max(seqs) {
			return ErrNotYet
		}
		_, err := conn.Exec(ctx, a.sql.clearLedgerOf, partition, seqs)
		if err == nil {
			purged = purge(ctx)
		}
		return err
	})
	return errors.Join(err, purged)
}

// fillLock is held by who fills tables beside those of a schema, and shared by who forgets.
const fillLock = "hashtextextended('turnledger.audit.fill.' || $1, 0)"

// whileNoneFill does something while nobody begins to fill tables beside these.
func (a *Audit) whileNoneFill(ctx context.Context, what string, do func(*pgxpool.Conn) error) error {
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return unavailable(what, err)
	}
	var free bool
	if err = conn.QueryRow(ctx, "select pg_try_advisory_lock_shared("+fillLock+")", a.cfg.Schema).Scan(&free); err != nil || !free {
		conn.Release()
		if err == nil {
			err = ErrNotYet
		}
		return unavailable(what, err)
	}
	err = do(conn)
	if _, unlock := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock_shared("+fillLock+")", a.cfg.Schema); unlock != nil {
		_ = conn.Hijack().Close(context.WithoutCancel(ctx)) // a lock that stays would hold up every rebuild
	} else {
		conn.Release()
	}
	return unavailable(what, err)
}
