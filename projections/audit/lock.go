package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events/pause"
)

// Who waits for an exclusive lock on a table holds up all later readers of it, also where another session keeps a
// reader's lock for hours, as pg_dump does. So it waits shortly, and then lets the readers be for pauseAfter times as
// long. Each time it waits twice as long, up to longestWait, so that it gets its turn among readers that take a while.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
	pauseAfter  = 30
)

// amongReaders calls try until it fails with something else than that it did not get a lock in time, or ctx ends.
func (a *Audit) amongReaders(ctx context.Context, try func(wait time.Duration) error) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := try(wait)
		if codeOf(err) != lockNotAvailable {
			return err
		}
		a.cfg.Logger.Warn("a change of the audit tables waits until another session lets go of them (pg_dump?)",
			"schema", a.cfg.Schema, "again_in", pauseAfter*wait)
		if !pause.For(ctx, pauseAfter*wait) {
			return ctx.Err()
		}
	}
}

// lockTimeout returns a statement that bounds each wait for a lock, until the transaction ends.
func lockTimeout(wait time.Duration) string {
	return fmt.Sprintf("set local lock_timeout = %d; ", wait.Milliseconds())
}

// lockTables takes all tables that there are before a migration changes one of them, so that a long migration is not
// in vain. First come the checkpoints, as with every reader.
func (a *Audit) lockTables(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	var tables string
	err := tx.QueryRow(ctx, `select coalesce(string_agg(format('%I.%I', schemaname, tablename), ', '
		order by tablename <> 'projection_checkpoints', tablename), '') from pg_tables where schemaname = $1`,
		a.cfg.Schema).Scan(&tables)
	if err == nil && tables != "" {
		_, err = tx.Exec(ctx, lockTimeout(wait)+"lock table "+tables+" in access exclusive mode; "+
			"set local lock_timeout to default")
	}
	return err
}
