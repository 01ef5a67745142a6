package history_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/audit/localpg"
)

var text = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)

// writers spreads b.N turns over n writers, each with sessions of ten turns.
func writers(b *testing.B, n int, record func(ctx context.Context, session, request string) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := record(b.Context(), fmt.Sprintf("session-%d", i/10), fmt.Sprintf("request-%d", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

func question() events.Question { return events.Question{QuestionNeutral: text, PipelineName: "bench"} }

// BenchmarkRecordTurn sets the durable recording of turns (start and finalize)
// against plain JetStream publishes of the same events with SyncAlways, and against
// the same turns written row by row, two statements a turn, into an indexed
// PostgreSQL table with its default durability.
func BenchmarkRecordTurn(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("turnledger/writers=%d", n), func(b *testing.B) {
			s := run(b, natstest.Log(b, 1))
			writers(b, n, func(ctx context.Context, session, request string) error {
				turn, err := s.StartTurn(ctx, conversation.Start{SessionID: session, RequestID: request, Question: question()})
				if err != nil {
					return err
				}
				_, err = s.FinalizeTurn(ctx, conversation.Finalize{SessionID: session, TurnID: turn.ID, Answer: events.Answer{AnswerNeutral: text}})
				return err
			})
		})
		b.Run(fmt.Sprintf("floor-sync-always/writers=%d", n), func(b *testing.B) {
			log, err := jetlog.Open(b.Context(), natstest.Connect(b, natstest.ServerIn(b, b.TempDir(), embedded.Always)), jetlog.Config{})
			require.NoError(b, err)
			writers(b, n, func(ctx context.Context, session, request string) error {
				id := events.TurnID(session, request)
				if _, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: question()}}}); err != nil {
					return err
				}
				_, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: text}}}})
				return err
			})
		})
	}
}

func BenchmarkRecordTurnPostgresFloor(b *testing.B) {
	pg, err := localpg.Start(b.Context(), localpg.Config{DataDir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = pg.Stop(context.WithoutCancel(b.Context())) })
	cfg, err := pgxpool.ParseConfig(pg.URL())
	require.NoError(b, err)
	cfg.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), `create table turns (turn_id uuid primary key, session_id text not null, request_id text not null,
		created_at timestamptz not null default now(), finalized_at timestamptz, question_neutral text not null, answer_neutral text,
		pipeline_name text, unique (session_id, request_id));
		create index on turns (session_id, created_at)`)
	require.NoError(b, err)
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", n), func(b *testing.B) {
			_, err := pool.Exec(b.Context(), `truncate turns`)
			require.NoError(b, err)
			writers(b, n, func(ctx context.Context, session, request string) error {
				id := events.TurnID(session, request)
				if _, err := pool.Exec(ctx, `insert into turns (turn_id, session_id, request_id, question_neutral, pipeline_name) values ($1, $2, $3, $4, 'bench')`,
					id, session, request, text); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, `update turns set answer_neutral = $2, finalized_at = now() where turn_id = $1`, id, text)
				return err
			})
		})
	}
}
