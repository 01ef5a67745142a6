package audit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed tables.sql
var tables string

// format is the format of the tables that this version makes and reads.
const format = 1

// makeTables makes the tables, or finds them as this version makes them. It uses its own connection.
func (a *Audit) makeTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	conn, err := a.checked(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return a.hint(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return a.makeIn(ctx, tx) }))
}

// checked makes a connection to a server that can hold the tables.
func (a *Audit) checked(ctx context.Context) (*pgx.Conn, error) {
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, *pgx.Conn) error{a.checkServer, a.checkPooler, a.checkSearchConfig} {
		if err := check(ctx, conn); err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
	}
	return conn, nil
}

// checkSearchConfig refuses a text search configuration that the database does not have.
func (a *Audit) checkSearchConfig(ctx context.Context, conn *pgx.Conn) error {
	if a.lexicon.Simple() {
		return nil
	}
	_, err := conn.Exec(ctx, "select $1::text::regconfig", pgx.QueryExecModeExec, a.cfg.SearchConfig)
	if code := codeOf(err); code != undefinedObject && code != invalidSchema {
		return a.hint(err)
	}
	var have string
	err = conn.QueryRow(ctx, `select coalesce(string_agg(cfgname, ', ' order by cfgname), '') from pg_ts_config`,
		pgx.QueryExecModeExec).Scan(&have)
	if err != nil {
		return a.hint(err)
	}
	return fmt.Errorf("%w: the database has no text search configuration %s: set TURNLEDGER_SEARCH_CONFIG to one of "+
		"%s; or make it with create text search configuration", ErrMissing, a.cfg.SearchConfig, have)
}

// warnOfTerms says that searches wait for a rebuild.
func (a *Audit) warnOfTerms(ctx context.Context) error {
	var mark string
	err := a.pool.QueryRow(ctx, a.sql("select search from {s}.generation")).Scan(&mark)
	if err == nil && !a.made(mark) {
		a.cfg.Logger.Warn("searches are refused until turnledger projections rebuild audit has filled the tables "+
			"anew: they were filled with another TURNLEDGER_SEARCH_CONFIG, or beside another log",
			"search_config", a.cfg.SearchConfig)
	}
	return a.hint(err)
}

// connect makes a connection beside the pool.
func (a *Audit) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, a.pool.Config().ConnConfig)
	return conn, a.hint(err)
}

// makeIn makes the tables in one transaction. So if some tables exist, all do.
func (a *Audit) makeIn(ctx context.Context, tx pgx.Tx) error {
	if err := a.makeSchema(ctx, tx); err != nil {
		return err
	}
	var made bool
	err := tx.QueryRow(ctx, "select to_regclass($1) is not null", a.cfg.Schema+".generation").Scan(&made)
	if err != nil {
		return err
	}
	if !made {
		_, err := tx.Exec(ctx, a.sql(tables))
		return err
	}
	var have int
	err = tx.QueryRow(ctx, a.sql("select format from {s}.generation")).Scan(&have)
	if codeOf(err) == undefinedColumn || err == nil && have != format {
		return fmt.Errorf("%w: another version of turnledger made the tables of schema %[2]s: run that one; or drop "+
			"them, and they are filled again from the log: drop schema %[2]s cascade", ErrMissing, a.cfg.Schema)
	}
	return err
}

// checkServer refuses a server on which single texts or statements would fail later.
func (a *Audit) checkServer(ctx context.Context, conn *pgx.Conn) error {
	var encoding string
	var version int
	err := conn.QueryRow(ctx, "select current_setting('server_encoding'), current_setting('server_version_num')::int",
		pgx.QueryExecModeExec).Scan(&encoding, &version)
	switch {
	case err != nil:
		return a.hint(err)
	case encoding != "UTF8":
		return fmt.Errorf("%w: the database's encoding is %s, but must be UTF8: "+
			"make another one with createdb -E UTF8 -T template0, and name it in the URL", ErrMissing, encoding)
	case version < 130000:
		return fmt.Errorf("%w: the server is older than PostgreSQL 13: upgrade it", ErrMissing)
	}
	return nil
}

// makeSchema creates the schema if it is missing, and keeps other processes from creating it or its tables until the
// transaction ends. If the schema exists, no right to create is needed.
func (a *Audit) makeSchema(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('turnledger.audit', 0))"); err != nil {
		return err
	}
	var stands bool
	err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", a.cfg.Schema).Scan(&stands)
	if err == nil && !stands {
		_, err = tx.Exec(ctx, "create schema "+a.cfg.Schema)
	}
	return err
}

// hint adds to an error of the first connection what to do about it.
func (a *Audit) hint(err error) error {
	if err == nil || errors.Is(err, ErrMissing) {
		return err
	}
	to := a.pool.Config().ConnConfig
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case !answered:
		return fmt.Errorf("audit: %w: %w: start PostgreSQL, or correct the URL (TURNLEDGER_POSTGRES_URL)",
			ErrUnavailable, err)
	case pg.Code == "3D000":
		return fmt.Errorf("%w: there is no database %q: make it with createdb -E UTF8 %s",
			ErrMissing, to.Database, to.Database)
	case pg.Code[:2] == "28":
		return fmt.Errorf("%w: it does not let the role %q in (%s): "+
			"correct the URL, or the role's password and pg_hba.conf", ErrMissing, to.User, pg.Message)
	case pg.Code == "42501":
		return fmt.Errorf("%w: %s: run: grant create on database %q to %q; or give that role the schema %s",
			ErrMissing, pg.Message, to.Database, to.User, a.cfg.Schema)
	case pg.Code == "25006":
		return fmt.Errorf("%w: it is read-only (a standby?): name the primary in the URL", ErrMissing)
	default:
		return fmt.Errorf("audit: make the tables: %w: %s (SQLSTATE %s)", ErrUnavailable, pg.Message, pg.Code)
	}
}

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
