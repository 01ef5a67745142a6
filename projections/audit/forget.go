package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// ErrNotYet says that a process may have read the event from the log already, and could write its row again: a rebuild,
// a verification, or a runner whose tables are behind the event.
var ErrNotYet = projections.NotYet(errors.New(
	"the audit is being rebuilt or verified, or has not applied yet what is to be forgotten; that waits for it"))

// ForgetEvent removes the ledger's row of an event that has left the log. If a runner has read the event but not
// applied it, it must claim the partition again, and then does not find the event any more. It fails with
// ErrUnavailable if PostgreSQL does not answer, and with ErrNotYet while a generation is being filled.
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

// ForgetEvents removes the ledger's rows of some events of a partition, and then calls purge, which removes the events
// from the log for a retention. Its errors are those of ForgetEvent and of purge. It also fails with ErrNotYet until
// the tables have applied all of the events.
func (a *Audit) ForgetEvents(ctx context.Context, partition int, seqs []uint64,
	purge func(context.Context) error) error {
	var purged error
	err := a.whileNoneFill(ctx, "forget events of the audit", func(conn *pgxpool.Conn) error {
		err := pgx.BeginTxFunc(ctx, conn, a.writing(), func(tx pgx.Tx) error {
			return a.forgetRows(ctx, tx, partition, seqs)
		})
		if err == nil {
			purged = purge(ctx)
		}
		return err
	})
	return errors.Join(err, purged)
}

// forgetRows removes the ledger's rows of some events. A session of which the ledger has other events, the markers of
// redactions, keeps a row: that of a session which never had the events.
func (a *Audit) forgetRows(ctx context.Context, tx pgx.Tx, partition int, seqs []uint64) error {
	var applied uint64
	err := tx.QueryRow(ctx, a.sql(appliedOf+" for update"), Name, partition).Scan(&applied)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && applied < slices.Max(seqs) {
		return ErrNotYet
	}
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, a.sql(clearSessions), partition, seqs); err != nil {
		return err
	}
	found, err := tx.Query(ctx, a.sql(anonymousOf), partition, seqs)
	if err != nil {
		return err
	}
	sessions, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var left []judged
	for _, id := range sessions {
		s, err := a.without(ctx, id, applied, seqs)
		if err != nil {
			return err
		}
		left = append(left, &projections.Judged{
			Recorded: events.Recorded{SessionID: id, Position: events.Position{Partition: partition}}, Head: s.Head(),
		})
	}
	if err = sessionTable.Merge(ctx, tx, a.cfg.Schema, left); err == nil {
		_, err = tx.Exec(ctx, a.sql(clearLedger), partition, seqs)
	}
	return err
}

// without folds a session up to a sequence, leaving some of its events out.
func (a *Audit) without(
	ctx context.Context, sessionID string, upTo uint64, seqs []uint64,
) (*session.State, error) {
	if a.cfg.Log == nil {
		return nil, errNoLog
	}
	gone := map[uint64]bool{}
	for _, seq := range seqs {
		gone[seq] = true
	}
	s := session.New(sessionID, a.cfg.Rules)
	for e, err := range a.cfg.Log.Session(ctx, sessionID, 0, upTo) {
		if err != nil {
			return nil, err
		}
		if !gone[e.Position.Seq] {
			s.Fold(e)
		}
	}
	return s, nil
}

// anonymousOf returns the anonymous sessions of some events that have a row.
const anonymousOf = `select session_id from {s}.sessions where identity_id is null and erased_position is null
	and session_id in (select session_id from {s}.event_ledger where partition = $1 and seq = any($2))`

// clearSessions removes the rows of anonymous sessions of which the ledger has no other events.
const clearSessions = `delete from {s}.sessions s
	using (select distinct session_id from {s}.event_ledger where partition = $1 and seq = any($2)) gone
	where s.session_id = gone.session_id and s.identity_id is null and s.erased_position is null
		and not exists (select from {s}.event_ledger l where l.session_id = s.session_id and not l.seq = any($2))`

const clearLedger = `delete from {s}.event_ledger where partition = $1 and seq = any($2)`

// fillLock is held exclusively while a generation is filled beside a schema's tables, and shared while events are
// forgotten.
const fillLock = "hashtextextended('turnledger.audit.fill.' || $1, 0)"

// whileNoneFill runs do while no generation can begin to be filled.
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
		_ = conn.Hijack().Close(after) // a remaining lock would block every rebuild
	} else {
		conn.Release()
	}
	return unavailable(what, err)
}
