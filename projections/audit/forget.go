package audit

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

// ForgetEvents takes the ledger's rows of a session's events out that a retention has
// taken out of the log: those up to a position, but of redactions, erasures and
// receipts, which stay there. ErrUnavailable where PostgreSQL does not answer.
func (a *Audit) ForgetEvents(ctx context.Context, sessionID string, upTo events.Position) error {
	_, err := a.pool.Exec(ctx, a.sql.expire, upTo.Partition, upTo.Seq, sessionID,
		[]string{events.TypeTurnRedacted, events.TypeSessionErased, events.TypeErasureReceipt})
	return unavailable("forget events of the audit", err)
}
