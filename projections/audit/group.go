package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections"
)

var _ projections.Group = (*Audit)(nil)

// Beat implements projections.Group: the runners that feed these tables, by PostgreSQL's clock. It
// makes the tables that are gone.
func (a *Audit) Beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	members, err := a.beat(ctx, member, alive)
	// A database that was lost comes back empty: the tables are made again, and the runners see that they have to fill them.
	if gone(err) {
		if err := a.migrate(ctx); err != nil {
			return nil, err
		}
		members, err = a.beat(ctx, member, alive)
	}
	return members, unavailable("meet the other runners of the audit", err)
}

func (a *Audit) beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	found, err := a.pool.Query(ctx, a.sql.beat, projection, member, alive.Seconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[string])
}

// Leave implements projections.Group.
func (a *Audit) Leave(ctx context.Context, member string) error {
	_, err := a.pool.Exec(ctx, a.sql.leave, projection, member)
	return unavailable("leave the other runners of the audit", err)
}
