package audit_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/desk"
)

// tables are audit tables in a database of their own, and what a test wants to see of them.
type tables struct {
	*audit.Audit
	t    testing.TB
	pool *pgxpool.Pool
	url  string
	name string
	log  projections.LogReader
	desk *desk.Desk
}

// Park does what a runner does with an event that can't be applied.
func (a *tables) Park(ctx context.Context, b projections.Batch, reason string) error {
	hold, err := a.desk.ClaimLetters(ctx, a.Name(), b.From)
	if err != nil {
		return err
	}
	if err := hold.Keep(ctx, b.From.Created, projections.NewDeadLetter(a.Name(), &b.Events[0], reason,
		time.Now())); err != nil {
		return err
	}
	b.Events, b.Parked = nil, b.Events
	return a.Apply(ctx, b)
}

func (a *tables) queue() *desk.Queue { return a.desk.Queue(a, a.log, rules) }

// open opens empty tables for a log.
func open(t testing.TB, log projections.LogReader) *tables {
	t.Helper()
	return openWith(t, audit.Config{URL: pg.URL(t), Log: log})
}

func openWith(t testing.TB, cfg audit.Config) *tables {
	t.Helper()
	cfg.Rules, cfg.Schema = rules, cmp.Or(cfg.Schema, "turnledger")
	a := must.Get(audit.Open(t.Context(), cfg))(t)
	t.Cleanup(a.Close)
	return connected(t, a, cfg.URL, cfg.Schema, cfg.Log)
}

// connected looks at tables that are open.
func connected(t testing.TB, a *audit.Audit, url, schema string, log projections.LogReader) *tables {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	return &tables{Audit: a, t: t, pool: pool, url: url, name: schema, log: log, desk: desk.InMemory()}
}

// filled applies a whole log in batches of at most most events.
func filled(t testing.TB, log *journal, most int) *tables {
	t.Helper()
	a := open(t, log)
	claim(t, log, a).all(most)
	return a
}

// names of all tables.
var names = []string{"questions", "answers", "sessions", "session_links", "event_ledger", "security_events",
	"projection_checkpoints"}

// dump returns the rows of each table, without what is no consequence of the log.
func (a *tables) dump() map[string][]string {
	a.t.Helper()
	out := map[string][]string{}
	for _, table := range names {
		out[table] = a.column("select (to_jsonb(t) - '{applied_at,parked_at,epoch}'::text[])::text from " + a.name +
			"." + table + " t order by 1")
	}
	return out
}

// column runs a query of one text column.
func (a *tables) column(sql string, args ...any) []string {
	a.t.Helper()
	found := must.Get(a.pool.Query(context.Background(), sql, args...))(a.t)
	out := must.Get(pgx.CollectRows(found, pgx.RowTo[string]))(a.t)
	return out
}

func (a *tables) exec(sql string, args ...any) {
	a.t.Helper()
	must.Get(a.pool.Exec(context.Background(), sql, args...))(a.t)
}

// requests lists the turns of a session in their order, each with its status.
func (a *tables) requests(session string) []string {
	a.t.Helper()
	return a.column("select request_id || ' ' || status from turnledger.turns where session_id = $1 order by place, "+
		"record_version", session)
}

func (a *tables) count(table string) int {
	a.t.Helper()
	return len(a.column("select '' from " + a.name + "." + table))
}

// empty takes every row out.
func (a *tables) empty() {
	a.t.Helper()
	a.desk = desk.InMemory()
	a.exec("delete from " + a.name + "." + strings.Join(names, "; delete from "+a.name+"."))
}
