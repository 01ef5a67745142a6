package audit

import (
	"cmp"
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
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/lexicon"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// Config of an Audit.
type Config struct {
	// URL of the database.
	URL string
	// Schema that holds the tables; "turnledger" by default. A generation that is being filled beside the served one
	// has its own schema.
	Schema string
	// Rules of the log's folds.
	Rules session.Rules
	// Log is read when a link needs its session's earlier turns. It is needed to apply events, but not to read the
	// tables.
	Log projections.LogReader
	// SearchConfig is the text search configuration that finds words, "simple" by default. SearchKey makes the terms of
	// the index; whoever searches needs the one that the tables were filled with.
	SearchConfig string
	SearchKey    words.Key
	Logger       *slog.Logger
}

const (
	connectTimeout = 5 * time.Second
	// checkDeadline bounds how long tables may take to be made, and to be asked what they are.
	checkDeadline = 10 * time.Second
	// pingAfter is shorter than a PostgreSQL takes to start.
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
	c.SearchConfig = cmp.Or(c.SearchConfig, lexicon.Simple)
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

// Audit is the audit tables of one log. Safe for concurrent use. Only one runner at a time can apply events of a
// partition; the checkpoint fences others.
type Audit struct {
	cfg  Config
	pool *pgxpool.Pool
	// unlinkedSessions holds the unlinked sessions of each partition that this process has claimed.
	early   [events.Buckets]atomic.Pointer[unlinkedSessions]
	second  *second
	lexicon *lexicon.Lexicon
	bounds  bounds
	// withoutTerms leaves out what searches need: benchmarks measure what it costs.
	withoutTerms bool
	// mends means that missing tables are made again.
	mends atomic.Bool
}

var _ projections.View = (*Audit)(nil)

// Open calls Look and Prepare.
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

// Prepare connects and makes the tables; several processes may do so at once. Tables that go missing
// later are made again. After ErrUnavailable, try again later. The text of ErrMissing says what to do first.
func (a *Audit) Prepare(ctx context.Context) error {
	if err := a.makeTables(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	if err := a.warnOfTerms(ctx); err != nil {
		return err
	}
	a.mends.Store(true)
	if err := a.sweep(ctx); err != nil {
		a.cfg.Logger.Warn("what a rebuild left behind is removed by the next one", "err", a.hint(err))
	}
	return nil
}

// Look opens the tables as they are, for a process that only reads. It creates and repairs nothing, and connects at the
// first query.
func Look(ctx context.Context, cfg Config) (*Audit, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pool, err := connect(ctx, cfg.URL)
	if err != nil {
		return nil, err
	}
	return &Audit{cfg: cfg, pool: pool, lexicon: lexicon.New(cfg.SearchConfig), bounds: usualBounds}, nil
}

// sql puts the schema's name into a statement.
func (a *Audit) sql(text string) string { return strings.ReplaceAll(text, "{s}", a.cfg.Schema) }

// PostgreSQL keeps the plans of prepared statements, even plans from when a table was small. These settings keep the
// planner from choosing a full scan, which it would keep using after the table has grown.
const byIndex = `set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off;
	set local jit = off`

// writing returns the options of a transaction that writes. Such a transaction does not wait for the disk (package
// doc).
func (a *Audit) writing() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: `begin; set local synchronous_commit = off;
		set local idle_in_transaction_session_timeout = '15s'; ` + byIndex}
}

// reading returns the options of a transaction that reads. LOCK takes no snapshot, so the snapshot begins after the
// lock, and the transaction sees only one generation.
func (a *Audit) reading() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: a.sql(`begin isolation level repeatable read read only;
		lock table {s}.projection_checkpoints in access share mode; ` + byIndex)}
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx's own error repeats the URL.
		return nil, errors.New("audit: the PostgreSQL URL can't be read: " +
			"want postgres://user:password@host/database, or keyword=value pairs")
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := pc.ConnConfig.RuntimeParams["application_name"]; !ok {
		pc.ConnConfig.RuntimeParams["application_name"] = "turnledger-audit"
	}
	// After PostgreSQL restarts, idle connections are broken. That must not fail a read, so a connection is checked
	// first, unless it was used a moment ago.
	pc.ShouldPing = func(_ context.Context, c pgxpool.ShouldPingParams) bool { return c.IdleDuration > pingAfter }
	return pgxpool.NewWithConfig(ctx, pc)
}

// Close ends the connections.
func (a *Audit) Close() { a.pool.Close() }

// Name of the projection.
func (a *Audit) Name() string { return Name }

// Name of the view.
const Name = "audit"
