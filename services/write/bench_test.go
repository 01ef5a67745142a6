package write_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

var text = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)

// recorder writes one turn, start and final.
type recorder func(ctx context.Context, session, request string) error

// spread has n writers record so many turns, in sessions of ten, and gives the time.
func spread(b *testing.B, n, turns int, run string, record recorder) time.Duration {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(turns); i = next.Add(1) {
				if err := record(b.Context(), fmt.Sprintf("%s-%d", run, i/10), fmt.Sprintf("request-%d",
					i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func question() events.Question { return events.Question{QuestionNeutral: text, PipelineName: "bench"} }

// BenchmarkRecordTurn sets the durable recording of turns (start and finalize) against
// plain JetStream publishes of the same events with SyncAlways, and against the same
// turns written row by row, two statements a turn, into an indexed PostgreSQL table with
// its default durability: all in turns of one run.
func BenchmarkRecordTurn(b *testing.B) {
	ours, always, postgres := throughService(b, natstest.Log(b, 1)), throughJetStream(b), throughPostgres(b)
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", n), func(b *testing.B) {
			const rounds = 3
			turns := max(b.N/rounds, 10*n)
			var took [3]time.Duration
			b.ResetTimer()
			for round := range rounds {
				run := fmt.Sprint(n, "-", b.N, "-", round)
				for i, record := range []recorder{ours, always, postgres} {
					took[i] += spread(b, n, turns, run, record)
				}
			}
			rate := func(i int) float64 { return float64(rounds*turns) / took[i].Seconds() }
			b.ReportMetric(rate(0), "turns/s")
			b.ReportMetric(rate(1), "sync-always-turns/s")
			b.ReportMetric(rate(2), "postgres-turns/s")
			b.ReportMetric(rate(0)/rate(1), "x_sync_always")
			b.ReportMetric(rate(0)/rate(2), "x_postgres")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func throughService(b *testing.B, log *jetlog.Log) recorder {
	s := run(b, log)
	return func(ctx context.Context, session, request string) error {
		turn, err := s.StartTurn(ctx, decide.Start{SessionID: session, RequestID: request, Question: question()})
		if err != nil {
			return err
		}
		_, err = s.FinalizeTurn(ctx, decide.Finalize{SessionID: session, TurnID: turn.ID,
			Answer: events.Answer{AnswerNeutral: text}})
		return err
	}
}

func throughJetStream(b *testing.B) recorder {
	log := must.Get(jetlog.Open(b.Context(), natstest.Connect(b, natstest.ServerIn(b, b.TempDir(), embedded.Always)),
		jetlog.Config{}))(b)
	return func(ctx context.Context, session, request string) error {
		start, final := bareTurn(session, request)
		if _, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{start}}); err != nil {
			return err
		}
		_, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{final}})
		return err
	}
}

// bareTurn is a turn as facts.
func bareTurn(session, request string) (start, final events.Fact) {
	id := events.TurnID(session, request)
	return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: question()},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: text}}
}

func throughPostgres(b *testing.B) recorder {
	pg := must.Get(localpg.Start(b.Context(), localpg.Config{DataDir: b.TempDir()}))(b)
	b.Cleanup(func() { _ = pg.Stop(context.WithoutCancel(b.Context())) })
	cfg := must.Get(pgxpool.ParseConfig(pg.URL()))(b)
	cfg.MaxConns = 64
	pool := must.Get(pgxpool.NewWithConfig(b.Context(), cfg))(b)
	b.Cleanup(pool.Close)
	_, err := pool.Exec(b.Context(), `create table turns (
		turn_id uuid primary key, session_id text not null, request_id text not null,
		created_at timestamptz not null default now(), finalized_at timestamptz, question_neutral text not null,
		answer_neutral text, pipeline_name text, unique (session_id, request_id));
		create index on turns (session_id, created_at)`)
	require.NoError(b, err)
	return func(ctx context.Context, session, request string) error {
		id := events.TurnID(session, request)
		if _, err := pool.Exec(ctx, `insert into turns (turn_id, session_id, request_id, question_neutral, pipeline_name) values ($1, $2, $3, $4, 'bench')`,
			id, session, request, text); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, `update turns set answer_neutral = $2, finalized_at = now() where turn_id = $1`, id, text)
		return err
	}
}
