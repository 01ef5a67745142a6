package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// ErrNotYet says that somebody may have read from the log what is to be forgotten, and could bring it back: a
// rebuild, a verification, or a runner whose tables are not that far.
var ErrNotYet = projections.NotYet(errors.New(
	"the audit is being rebuilt or verified, or has not applied yet what is to be forgotten; that waits for it"))

// ForgetEvent takes the ledger's row of an event out that has left the log by itself. A runner that has read the event
// and not applied it has to claim the partition anew, and finds it no more. ErrUnavailable where PostgreSQL does not
// answer, ErrNotYet until tables beside the served ones are served or gone.
func (a *Audit) ForgetEvent(ctx context.Context, at events.Position) error {
	return a.whileNoneFill(ctx, "forget an event of the audit", func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, a.sql(`update {s}.projection_checkpoints set epoch = epoch + 1
			where projection = $1 and partition = $2 and seq < $3`), Name, at.Partition, at.Seq)
		if err == nil {
			_, err = conn.Exec(ctx, a.sql(clearLedger), at.Partition, []uint64{at.Seq})
		}
		return err
	})
}

// ForgetEvents takes the ledger's rows of some events of a partition out, and then has purge take the events out of the
// log, for a retention. Errors are those of ForgetEvent, ErrNotYet also until the tables have applied all of the
// events, and those of purge.
func (a *Audit) ForgetEvents(ctx context.Context, partition int, seqs []uint64,
	purge func(context.Context) error) error {
	var purged error
	err := a.whileNoneFill(ctx, "forget events of the audit", func(conn *pgxpool.Conn) error {
		var applied uint64
		err := conn.QueryRow(ctx, a.sql(`select coalesce((`+appliedOf+`), 0)`), Name, partition).Scan(&applied)
		if err != nil {
			return err
		}
		if applied < slices.Max(seqs) {
			return ErrNotYet
		}
		if _, err = conn.Exec(ctx, a.sql(clearLedger), partition, seqs); err == nil {
			purged = purge(ctx)
		}
		return err
	})
	return errors.Join(err, purged)
}

const clearLedger = `delete from {s}.event_ledger where partition = $1 and seq = any($2)`

// fillLock is held while tables beside those of a schema are filled, and shared while events are forgotten.
const fillLock = "hashtextextended('turnledger.audit.fill.' || $1, 0)"

// whileNoneFill does something while nobody begins to fill tables beside these.
func (a *Audit) whileNoneFill(ctx context.Context, what string, do func(*pgxpool.Conn) error) error {
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return unavailable(what, err)
	}
	var free bool
	err = conn.QueryRow(ctx, "select pg_try_advisory_lock_shared("+fillLock+")", a.cfg.Schema).Scan(&free)
	if err != nil || !free {
		conn.Release()
		return unavailable(what, cmp.Or(err, ErrNotYet))
	}
	err = do(conn)
	after := context.WithoutCancel(ctx)
	if _, kept := conn.Exec(after, "select pg_advisory_unlock_shared("+fillLock+")", a.cfg.Schema); kept != nil {
		_ = conn.Hijack().Close(after) // a lock that stays would hold up every rebuild
	} else {
		conn.Release()
	}
	return unavailable(what, err)
}
