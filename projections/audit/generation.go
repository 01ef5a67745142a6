package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// A generation is a schema of its own, named after the served one. The swap is two renames in one transaction. The new
// schema takes over name, grants and number. No reader sees half of each generation: every transaction first takes a
// shared lock on the checkpoints' table, and the swap takes an exclusive one.
const (
	nextSuffix   = "_next"
	formerSuffix = "_former"
)

var (
	_ projections.Rebuildable = (*Audit)(nil)
	_ projections.Generation  = (*generation)(nil)
)

// ErrDependent says that a view or a foreign key of another schema refers to the tables, and would be dropped with the
// former generation.
var ErrDependent = errors.New("objects outside the audit's schema stand on its tables, " +
	"and would be lost with a rebuild: drop them, rebuild, and make them again")

// NewGeneration implements projections.Rebuildable. The database needs room for both generations until the swap.
func (a *Audit) NewGeneration(ctx context.Context) (projections.Generation, error) {
	g, err := a.newTables(ctx, nextSuffix)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// generation is the set of tables that one rebuild, or one verification, fills. Its connection holds the lock that
// excludes other rebuilds. If the connection breaks, the next rebuild may begin, and this one ends, since the swap
// needs the connection.
type generation struct {
	*Audit
	served *Audit
	conn   *pgx.Conn
	// helper is the connection that does half of the writing.
	helper *second
	number uint64
	// unserved are the schemas to drop.
	unserved []string
}

// newTables makes empty tables in a schema beside the served one.
func (a *Audit) newTables(ctx context.Context, suffix string) (*generation, error) {
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	helper, err := a.connect(ctx)
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	g := &generation{served: a, conn: conn, helper: &second{conn: helper}, unserved: []string{a.cfg.Schema + suffix}}
	if err := g.open(ctx, suffix); err != nil {
		g.close(ctx)
		if errors.Is(err, projections.ErrRebuilding) || errors.Is(err, ErrDependent) {
			return nil, err
		}
		return nil, a.hint(err)
	}
	return g, nil
}

func (g *generation) open(ctx context.Context, suffix string) error {
	if err := g.lock(ctx); err != nil {
		return err
	}
	if suffix == nextSuffix {
		if err := g.independent(ctx); err != nil {
			return err
		}
	}
	if err := g.dropSchemas(ctx, g.served.besideNames()); err != nil {
		return err
	}
	served, err := g.served.Served(ctx)
	if err != nil {
		return err
	}
	cfg := g.served.cfg
	cfg.Schema = g.unserved[0]
	g.Audit = &Audit{cfg: cfg, pool: g.served.pool, second: g.helper, lexicon: g.served.lexicon}
	g.number = served.Generation + 1
	if err := g.makeTables(ctx); err != nil {
		return err
	}
	_, err = g.conn.Exec(ctx, g.sql("update {s}.generation set number = $1, store = $2"), g.number, served.Store)
	if err != nil {
		return err
	}
	// While the tables have no readers and get only new rows, there is nothing to vacuum.
	_, err = g.conn.Exec(ctx, g.alterLarge("set (autovacuum_enabled = off)"))
	return err
}

// alterLarge returns statements that change the tables with a row for each turn or event.
func (g *generation) alterLarge(change string) string {
	return g.sql("alter table {s}.questions " + change + "; alter table {s}.answers " + change +
		"; alter table {s}.event_ledger " + change)
}

// lock excludes other rebuilds and verifications of these tables, and calls of ForgetEvents and ForgetEvent, until the
// connection ends. It waits for such a call if one is running, since the log must be read as it is after the call.
func (g *generation) lock(ctx context.Context) error {
	var got bool
	err := g.conn.QueryRow(ctx, "select pg_try_advisory_lock(hashtextextended('turnledger.audit.rebuild.' || $1, 0))",
		g.served.cfg.Schema).Scan(&got)
	if err == nil && !got {
		err = projections.ErrRebuilding
	}
	if err == nil {
		_, err = g.conn.Exec(ctx, "select pg_advisory_lock("+fillLock+")", g.served.cfg.Schema)
	}
	return err
}

// independent returns ErrDependent if views or foreign keys of others would be dropped with the tables.
func (g *generation) independent(ctx context.Context) error {
	var others bool
	err := g.conn.QueryRow(ctx, `select exists (
		select from pg_depend d join pg_rewrite r on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
			join pg_class c on c.oid = r.ev_class 
			join pg_class t on d.refclassid = 'pg_class'::regclass and d.refobjid = t.oid
			where t.relnamespace = n.oid and c.relnamespace <> n.oid
		union all select from pg_constraint k join pg_class t on k.confrelid = t.oid
			join pg_class c on k.conrelid = c.oid
			where t.relnamespace = n.oid and c.relnamespace <> n.oid)
		from pg_namespace n where n.nspname = $1`, g.served.cfg.Schema).Scan(&others)
	if err == nil && others {
		err = ErrDependent
	}
	return err
}

// besideNames returns the names of the schemas that exist for a while beside the served one.
func (a *Audit) besideNames() []string {
	return []string{a.cfg.Schema + nextSuffix, a.cfg.Schema + formerSuffix, a.cfg.Schema + verifySuffix}
}

func (g *generation) dropSchemas(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, err := g.conn.Exec(ctx, "drop schema if exists "+name+" cascade"); err != nil {
			return err
		}
	}
	return nil
}

// Number implements projections.Generation.
func (g *generation) Number() uint64 { return g.number }

// Drop implements projections.Generation.
func (g *generation) Drop(ctx context.Context) error {
	defer g.close(ctx)
	if err := g.dropSchemas(ctx, g.unserved); err != nil && !g.conn.IsClosed() {
		return failure("drop a generation of the audit", err)
	}
	return nil
}

// close frees the lock. If the connection is broken, the server frees the lock itself, but later.
func (g *generation) close(ctx context.Context) {
	_, _ = g.conn.Exec(ctx, "select pg_advisory_unlock_all()")
	_ = g.conn.Close(ctx)
	if g.helper != nil {
		_ = g.helper.conn.Close(ctx)
	}
}

// Swap implements projections.Generation.
func (g *generation) Swap(ctx context.Context, check projections.SwapCheck) error {
	err := g.served.amongReaders(ctx, func(wait time.Duration) error { return g.trySwap(ctx, check, wait) })
	return failure("swap the generations of the audit", err)
}

func (g *generation) trySwap(ctx context.Context, check projections.SwapCheck, wait time.Duration) error {
	behind := false
	err := pgx.BeginFunc(ctx, g.conn, func(tx pgx.Tx) (err error) {
		_, err = tx.Exec(ctx, g.served.sql(lockTimeout(wait)+
			"lock table {s}.projection_checkpoints in access exclusive mode"))
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, g.between(`select exists (select from {served}.projection_checkpoints s
			left join {next}.projection_checkpoints n using (projection, partition)
			where s.projection = $1 and s.seq > coalesce(n.seq, 0))`), Name).Scan(&behind)
		if err != nil || behind && check == projections.ReachFormer {
			return err
		}
		return g.takePlace(ctx, tx, check)
	})
	if err != nil || !behind || check == projections.PassFormer {
		return err
	}
	_, err = g.conn.Exec(ctx, g.served.sql(`update {s}.projection_checkpoints set epoch = epoch + 1
		where projection = $1`), Name)
	return cmp.Or(err, projections.ErrNotCaughtUp)
}

// takePlace transfers to this generation the served one's name and grants.
func (g *generation) takePlace(ctx context.Context, tx pgx.Tx, check projections.SwapCheck) error {
	do := &pgx.Batch{}
	// The higher epoch makes every runner claim the tables anew.
	do.Queue(g.between(`update {next}.projection_checkpoints n set epoch = greatest(n.epoch, coalesce((
		select s.epoch from {served}.projection_checkpoints s
		where s.projection = n.projection and s.partition = n.partition), 0)) + 1`))
	if check == projections.ReachFormer {
		// Refused links and anomalies of erased events can't be built from the log, so they are copied (package doc).
		do.Queue(g.between(`insert into {next}.security_events select s.* from {served}.security_events s
			where not exists (select from {next}.event_ledger l where l.partition = s.partition and l.seq = s.seq)
			on conflict do nothing`))
	}
	if err := tx.SendBatch(ctx, do).Close(); err != nil {
		return err
	}
	if err := g.grant(ctx, tx); err != nil {
		return err
	}
	former := g.served.cfg.Schema + formerSuffix
	_, err := tx.Exec(ctx, g.alterLarge("reset (autovacuum_enabled)")+g.between(
		"; alter schema {served} rename to "+former+"; alter schema {next} rename to {served}"))
	if err == nil {
		g.unserved = []string{former}
	}
	return err
}

// grant copies the grants of the old tables to the new ones.
func (g *generation) grant(ctx context.Context, tx pgx.Tx) error {
	found, _ := tx.Query(ctx, `
		select format('grant %s on schema %I to %s', x.privilege_type, $2::text,
				case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end)
			from pg_namespace n, aclexplode(n.nspacl) x where n.nspname = $1 and x.grantee <> n.nspowner
		union all
		select format('grant %s on %I.%I to %s', x.privilege_type, $2::text, c.relname,
				case x.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end)
			from pg_class c join pg_namespace n on n.oid = c.relnamespace, aclexplode(c.relacl) x
			where n.nspname = $1 and c.relkind in ('r', 'v') and x.grantee <> c.relowner`,
		g.served.cfg.Schema, g.cfg.Schema)
	grants, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err == nil {
		_, err = tx.Exec(ctx, strings.Join(grants, "; "))
	}
	return err
}

// between puts the names of both schemas into a statement.
func (g *generation) between(sql string) string {
	return strings.NewReplacer("{served}", g.served.cfg.Schema, "{next}", g.cfg.Schema).Replace(sql)
}

// sweep drops what a killed rebuild has left behind, unless a rebuild is running.
func (a *Audit) sweep(ctx context.Context) error {
	var left bool
	err := a.pool.QueryRow(ctx, "select exists (select from pg_namespace where nspname = any($1))",
		a.besideNames()).Scan(&left)
	if err != nil || !left {
		return err
	}
	conn, err := a.connect(ctx)
	if err != nil {
		return err
	}
	g := &generation{served: a, conn: conn}
	defer g.close(ctx)
	if err := g.lock(ctx); errors.Is(err, projections.ErrRebuilding) {
		return nil
	} else if err != nil {
		return err
	}
	return g.dropSchemas(ctx, a.besideNames())
}

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
