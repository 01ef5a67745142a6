package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// client is a connection to PostgreSQL, or to a pooler before it.
type client interface {
	// backend returns the number of the server's process that answers.
	backend(ctx context.Context) (int, error)
	// keep begins a transaction, during which a pooler can't give the server's process to another client.
	keep(ctx context.Context) error
}

// pooled reports whether a pooler assigns each transaction of a client to any free process of the server. Then two
// clients may share a process, or one client may use two. Locks and prepared statements belong to a process, so they
// don't work there.
func pooled(ctx context.Context, a, b client) (bool, error) {
	before, err := a.backend(ctx)
	if err != nil {
		return false, err
	}
	if err := b.keep(ctx); err != nil {
		return false, err
	}
	theirs, err := b.backend(ctx)
	if err != nil || theirs == before {
		return theirs == before, err
	}
	after, err := a.backend(ctx)
	return after != before, err
}

type pgClient struct{ *pgx.Conn }

func (c pgClient) backend(ctx context.Context) (pid int, err error) {
	err = c.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

func (c pgClient) keep(ctx context.Context) error {
	_, err := c.Exec(ctx, "begin", pgx.QueryExecModeExec)
	return err
}

// checkPooler refuses such a pooler, since rebuilds and erasures would fail later.
func (a *Audit) checkPooler(ctx context.Context, conn *pgx.Conn) error {
	other, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	is, err := pooled(ctx, pgClient{conn}, pgClient{other})
	if err != nil {
		return a.hint(err)
	}
	if is {
		return fmt.Errorf("%w: a pooler gives each transaction another of its connections, where locks don't hold "+
			"(PgBouncer's pool_mode=transaction): set pool_mode=session for this database, "+
			"or name the server itself in TURNLEDGER_POSTGRES_URL", ErrMissing)
	}
	return nil
}
