package audit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
)

// ErrNotYet says that somebody may have read from the log what is to be forgotten, and could bring it back: a rebuild or a
// verification, or who feeds tables that are not that far.
var ErrNotYet = errors.New("the audit is being rebuilt or verified, or has not applied yet what is to be forgotten; that waits for it")

// ForgetEvent takes the ledger's row of an event out that has left the log by itself.
// ErrUnavailable where PostgreSQL does not answer, ErrNotYet until tables beside the
// served ones are served or gone. Whether these are that far is the caller's to know.
func (a *Audit) ForgetEvent(ctx context.Context, at events.Position) error {
	return a.onceApplied(ctx, "forget an event of the audit", events.Position{Partition: at.Partition}, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "delete from "+a.cfg.Schema+".event_ledger where partition = $1 and seq = $2", at.Partition, at.Seq)
		return err
	})
}

// ForgetEvents takes the ledger's rows of a session's events out that a retention is to
// take out of the log, and then has it do so: those up to a position, but of
// redactions, erasures and receipts, which stay there. Errors are those of ForgetEvent, ErrNotYet
// also until the tables have applied that position, and purge's.
func (a *Audit) ForgetEvents(ctx context.Context, sessionID string, upTo events.Position, purge func(context.Context) error) error {
	forget := "delete from " + a.cfg.Schema + ".event_ledger where partition = $1 and seq <= $2 and session_id = $3 and type <> all($4)"
	var purged error
	err := a.onceApplied(ctx, "forget events of the audit", upTo, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, forget, upTo.Partition, upTo.Seq, sessionID,
			[]string{events.TypeTurnRedacted, events.TypeSessionErased, events.TypeErasureReceipt})
		if err == nil {
			purged = purge(ctx)
		}
		return err
	})
	return errors.Join(err, purged)
}

// fillLock is held by who fills tables beside those of a schema, and shared by who forgets.
const fillLock = "hashtextextended('turnledger.audit.fill.' || $1, 0)"

// onceApplied does something where the tables are at a position or behind it, while nobody begins to fill others beside them.
func (a *Audit) onceApplied(ctx context.Context, what string, at events.Position, do func(*pgxpool.Conn) error) error {
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
	var applied uint64
	err = conn.QueryRow(ctx, "select coalesce(("+a.sql.applied+"), 0)", projection, at.Partition).Scan(&applied)
	switch {
	case err != nil:
	case applied < at.Seq:
		err = ErrNotYet
	default:
		err = do(conn)
	}
	if _, unlock := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock_shared("+fillLock+")", a.cfg.Schema); unlock != nil {
		_ = conn.Hijack().Close(context.WithoutCancel(ctx)) // a lock that stays would hold up every rebuild
	} else {
		conn.Release()
	}
	return unavailable(what, err)
}
