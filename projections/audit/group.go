package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections"
)

var _ projections.Group = (*Audit)(nil)

// Beat implements projections.Group: the runners that feed these tables, by PostgreSQL's clock.
func (a *Audit) Beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	found, err := a.pool.Query(ctx, a.sql.beat, projection, member, alive.Seconds())
	if err != nil {
		return nil, unavailable("meet the other runners of the audit", err)
	}
	members, err := pgx.CollectRows(found, pgx.RowTo[string])
	return members, unavailable("meet the other runners of the audit", err)
}

// Leave implements projections.Group.
func (a *Audit) Leave(ctx context.Context, member string) error {
	_, err := a.pool.Exec(ctx, a.sql.leave, projection, member)
	return unavailable("leave the other runners of the audit", err)
}
