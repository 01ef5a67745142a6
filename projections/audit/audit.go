package audit

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// Config of an Audit.
type Config struct {
	// URL of the database.
	URL string
	// Schema that holds the tables; "turnledger" by default. A generation that is filled beside the served one has
	// its own.
	Schema string
	// Rules of the log's folds.
	Rules conversation.Rules
	// Log is read where a link needs its session's earlier turns. It is needed to apply events, not to read.
	Log    projections.LogReader
	Logger *slog.Logger
}

const (
	connectTimeout = 5 * time.Second
	// pingAfter is less than a PostgreSQL takes to start.
	pingAfter = 50 * time.Millisecond
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func (c Config) withDefaults() (Config, error) {
	if c.Schema == "" {
		c.Schema = "turnledger"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Rules.Slim = false
	var wrong []error
	if c.URL == "" {
		wrong = append(wrong, errors.New("audit: give the URL of a database"))
	}
	if !schemaName.MatchString(c.Schema) {
		wrong = append(wrong, errors.New("audit: a schema's name is 1 to 40 small letters, digits and _"))
	}
	return c, errors.Join(wrong...)
}

// Audit is the audit tables of one log. Safe for concurrent use; Apply of one partition is one runner's, and
// fenced against others.
type Audit struct {
	cfg  Config
	pool *pgxpool.Pool
	// early has what is kept of each partition that was claimed here.
	early  [events.Buckets]atomic.Pointer[early]
	second *second
	// mends says that tables that are gone are made again.
	mends atomic.Bool
}

var _ projections.View = (*Audit)(nil)

// Open is Look and Prepare.
func Open(ctx context.Context, cfg Config) (*Audit, error) {
	a, err := Look(ctx, cfg)
	if err == nil {
		err = a.Prepare(ctx)
	}
	if err != nil {
		if a != nil {
			a.Close()
		}
		return nil, err
	}
	return a, nil
}

// Prepare connects and brings the tables to this program's form; several processes may do so at once. Tables that
// are gone later are made again. ErrUnavailable: try again later. ErrMissing: the text says what to do first.
func (a *Audit) Prepare(ctx context.Context) error {
	if err := a.migrate(ctx); err != nil {
		return err
	}
	a.mends.Store(true)
	if err := a.sweep(ctx); err != nil {
		a.cfg.Logger.Warn("what a rebuild left behind is removed by the next one", "err", a.hint(err))
	}
	return nil
}

// Look opens the tables as they are, for a process that only reads: it makes and mends nothing, and connects when it
// is first asked.
func Look(ctx context.Context, cfg Config) (*Audit, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pool, err := connect(ctx, cfg.URL)
	if err != nil {
		return nil, err
	}
	return &Audit{cfg: cfg, pool: pool}, nil
}

// sql names the schema in a statement.
func (a *Audit) sql(text string) string { return strings.ReplaceAll(text, "{s}", a.cfg.Schema) }

// Plans of statements are kept, also those that were made while the tables were small. So the planner is kept from
// reading a table from end to end, which it would go on doing when the table has grown.
const byIndex = `set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off;
	set local jit = off`

// writing begins a transaction that writes. It does not wait for the disk (package doc).
func (a *Audit) writing() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: `begin; set local synchronous_commit = off;
		set local idle_in_transaction_session_timeout = '15s'; ` + byIndex}
}

// reading begins a transaction that reads. LOCK takes no snapshot: what the transaction sees begins after it, in one
// generation.
func (a *Audit) reading() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: a.sql(`begin isolation level repeatable read read only;
		lock table {s}.projection_checkpoints in access share mode; ` + byIndex)}
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error itself repeats the URL.
		return nil, errors.New("audit: the PostgreSQL URL can't be read: " +
			"want postgres://user:password@host/database, or keyword=value pairs")
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := pc.ConnConfig.RuntimeParams["application_name"]; !ok {
		pc.ConnConfig.RuntimeParams["application_name"] = "turnledger-audit"
	}
	// A connection can break with a server that is back already. That must not fail a read, so a connection is
	// looked at first, unless it was in use a moment ago.
	pc.ShouldPing = func(_ context.Context, c pgxpool.ShouldPingParams) bool { return c.IdleDuration > pingAfter }
	return pgxpool.NewWithConfig(ctx, pc)
}

// Close ends the connections.
func (a *Audit) Close() { a.pool.Close() }

// Name of the projection.
func (a *Audit) Name() string { return Name }

// Name of the view.
const Name = "audit"
