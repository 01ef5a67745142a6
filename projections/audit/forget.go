package audit

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

// ForgetEvent takes the ledger's row of an event out that has left the log by itself.
// ErrUnavailable where PostgreSQL does not answer.
func (a *Audit) ForgetEvent(ctx context.Context, at events.Position) error {
	_, err := a.pool.Exec(ctx, "delete from "+a.cfg.Schema+".event_ledger where partition = $1 and seq = $2", at.Partition, at.Seq)
	return unavailable("forget an event of the audit", err)
}

// ForgetEvents takes the ledger's rows of a session's events out that a retention has
// taken out of the log: those up to a position, but of redactions, erasures and
// receipts, which stay there. ErrUnavailable where PostgreSQL does not answer.
func (a *Audit) ForgetEvents(ctx context.Context, sessionID string, upTo events.Position) error {
	forget := "delete from " + a.cfg.Schema + ".event_ledger where partition = $1 and seq <= $2 and session_id = $3 and type <> all($4)"
	_, err := a.pool.Exec(ctx, forget, upTo.Partition, upTo.Seq, sessionID,
		[]string{events.TypeTurnRedacted, events.TypeSessionErased, events.TypeErasureReceipt})
	return unavailable("forget events of the audit", err)
}
