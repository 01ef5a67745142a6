package audit

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// Config of an Audit.
type Config struct {
	// URL of the database. Or Pool, which stays the caller's to close.
	URL  string
	Pool *pgxpool.Pool
	// Schema that holds the tables; "turnledger" by default. A generation that is filled beside the served one has its own.
	Schema string
	// Rules of the log's folds.
	Rules conversation.Rules
	// Log is read where a link needs its session's earlier turns, and where a dead letter is retried. It is needed to apply
	// events, not to read.
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
	if (c.URL == "") == (c.Pool == nil) {
		wrong = append(wrong, errors.New("audit: give a URL or a pool, and not both"))
	}
	if !schemaName.MatchString(c.Schema) {
		wrong = append(wrong, errors.New("audit: a schema's name is 1 to 40 small letters, digits and _"))
	}
	return c, errors.Join(wrong...)
}

// Audit is the audit tables of one log. Safe for concurrent use; Apply of one partition is one runner's, and
// fenced against others.
type Audit struct {
	cfg    Config
	pool   *pgxpool.Pool
	sql    statements
	early  kept
	second *second
	// mends: tables that are gone are made again.
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

// Look opens the tables as they are, if they are, for who only reads: it makes and mends nothing, and connects when it is first asked.
func Look(ctx context.Context, cfg Config) (*Audit, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pool := cfg.Pool
	if pool == nil {
		if pool, err = connect(ctx, cfg.URL); err != nil {
			return nil, err
		}
	}
	return &Audit{cfg: cfg, pool: pool, sql: newStatements(cfg.Schema)}, nil
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("audit: the PostgreSQL URL can't be read: want postgres://user:password@host/database, or keyword=value pairs") // the error repeats it
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := pc.ConnConfig.RuntimeParams["application_name"]; !ok {
		pc.ConnConfig.RuntimeParams["application_name"] = "turnledger-audit"
	}
	// A connection that broke with a server that is back already must not fail a read: it is looked at first, unless it was in
	// use a moment ago.
	pc.ShouldPing = func(_ context.Context, c pgxpool.ShouldPingParams) bool { return c.IdleDuration > pingAfter }
	return pgxpool.NewWithConfig(ctx, pc)
}

// Close ends the connections that Open made.
func (a *Audit) Close() {
	if a.cfg.Pool == nil {
		a.pool.Close()
	}
}

// Name of the projection.
func (a *Audit) Name() string { return Name }

// Name of the view.
const Name = "audit"

const projection = Name
