package dailyturns_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/docs/examples/dailyturns"
	"github.com/turnledger/turnledger/docs/examples/dailyturns/subscriber"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/runner"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(pg.Runner(m)) }

// turns records some in each of a few sessions, and says one start twice.
func turns(t *testing.T, log *jetlog.Log, n int) {
	for i := range n {
		session, request := fmt.Sprint("s", i%5), fmt.Sprint("r", i)
		var f events.Fact = turntest.Started(session, request, "q")
		if i%4 == 3 {
			f = turntest.Recorded(session, request, "q", "a")
		}
		for range 1 + i%2 {
			must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
		}
	}
}

func database(t *testing.T, tables string) *pgxpool.Pool {
	pool := must.Get(pgxpool.New(t.Context(), pg.URL(t)))(t)
	t.Cleanup(pool.Close)
	must.Get(pool.Exec(t.Context(), tables))(t)
	return pool
}

func background(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func counted(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// The projection counts each turn once, over several partitions, however often it is
// stopped, begun again, and run twice at once.
func TestDailyTurns(t *testing.T) {
	t.Parallel()
	pool, log := database(t, string(must.Get(os.ReadFile("tables.sql"))(t))), natstest.Log(t, 2)
	var p projections.Projection = dailyturns.DailyTurns{Pool: pool}
	began := time.Now()
	const sum = "select coalesce(sum(turns), 0) from daily_turns"
	for round := range 3 {
		turns(t, log, 20*(round+1))
		cfg := runner.Config{Rules: session.Rules{SessionTTL: 24 * time.Hour},
			Feeding: runner.Feeding{MaxBatch: 7}, Pause: 5 * time.Millisecond}
		one, two := background(t, runner.New(log, p, cfg).Run), background(t, runner.New(log, p, cfg).Run)
		hang.Until(t, func() bool { return counted(t, pool, sum) == 20*(round+1) })
		one()
		two()
	}
	require.Equal(t, 60, counted(t, pool, sum))
	var day string
	require.NoError(t, pool.QueryRow(t.Context(), "select max(day)::text from daily_turns").Scan(&day))
	require.Contains(t, []string{ // it may be past midnight since
		began.UTC().Format(time.DateOnly), time.Now().UTC().Format(time.DateOnly),
	}, day)
	b := projections.Batch{From: projections.Checkpoint{Seq: 1, Epoch: 1}}
	require.ErrorIs(t, p.Apply(t.Context(), b), projections.ErrFenced)
}

func TestDailyTurnsWithWatermillAlone(t *testing.T) {
	t.Parallel()
	pool := database(t, "create table turns_seen (turn_id uuid primary key, day date not null)")
	log := natstest.Log(t, 2)
	stop := background(t, func(ctx context.Context) error { return subscriber.Run(ctx, log, pool) })
	turns(t, log, 40)
	hang.Until(t, func() bool { return counted(t, pool, "select count(*) from turns_seen") == 40 })
	stop()
}

// The code that docs/projections.md shows is the code that is tested here.
func TestTheDocumentShowsTheseFiles(t *testing.T) {
	t.Parallel()
	doc := must.Get(os.ReadFile("../../projections.md"))(t)
	for fence, file := range map[string]string{"go": "dailyturns.go", "sql": "tables.sql"} {
		code := must.Get(os.ReadFile(file))(t)
		require.Contains(t, string(doc), "```"+fence+"\n"+string(code)+"```\n", "copy %s into docs/projections.md",
			file)
		require.Less(t, strings.Count(string(code), "\n"), 60)
	}
	_, body, _ := strings.Cut(string(must.Get(os.ReadFile("subscriber/subscriber.go"))(t)), "\nfunc Run")
	require.Contains(t, string(doc), "```go\nfunc Run"+body+"```\n",
		"copy subscriber.go's Run into docs/projections.md")
}
