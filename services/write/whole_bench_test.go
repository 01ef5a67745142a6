package write_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/write"
)

// BenchmarkRecordWholeTurn records turns by two calls, by one call each, and by batches of 500, and sets each against
// the bare publishes of the same events to the same kind of server, in turns of one run.
func BenchmarkRecordWholeTurn(b *testing.B) {
	s, floor := run(b, natstest.Log(b, 1)), natstest.Log(b, 1)
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", n), func(b *testing.B) {
			const rounds = 3
			turns := max(b.N/rounds, 20*n)
			var bare, two, one, many time.Duration
			b.ResetTimer()
			for round := range rounds {
				name := fmt.Sprint(n, "-", b.N, "-", round)
				bare += apart(b, n, turns, name, publishBare(floor))
				two += apart(b, n, turns, name+"-two", inTwoCalls(s))
				one += apart(b, n, turns, name+"-one", inOneCall(s))
				many += inBatches(b, s, min(n, 4), turns, name)
			}
			rate := func(took time.Duration) float64 { return float64(rounds*turns) / took.Seconds() }
			b.ReportMetric(rate(bare), "bare-turns/s")
			b.ReportMetric(rate(two)/rate(bare), "x_two_calls")
			b.ReportMetric(rate(one), "turns/s")
			b.ReportMetric(rate(one)/rate(bare), "x_one_call")
			b.ReportMetric(rate(many), "batched-turns/s")
			b.ReportMetric(rate(many)/rate(bare), "x_batches")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// apart has n writers record so many turns, each in sessions of its own with twenty turns.
func apart(b *testing.B, n, turns int, name string, record recorder) time.Duration {
	b.Helper()
	var wg sync.WaitGroup
	began := time.Now()
	for w := range n {
		wg.Go(func() {
			for i := range turns / n {
				if err := record(b.Context(), fmt.Sprintf("%s-%d-%d", name, w, i/20), fmt.Sprint(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// publishBare appends the two events of a turn and waits for the disk, without a decision.
func publishBare(log *jetlog.Log) recorder {
	return func(ctx context.Context, session, request string) error {
		start, final := bareTurn(session, request)
		for _, f := range []events.Fact{start, final} {
			ack, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
			if err == nil {
				err = log.Durable(ctx, ack.Position)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func inTwoCalls(s *write.Service) recorder {
	return func(ctx context.Context, session, request string) error {
		t, err := s.StartTurn(ctx, decide.Start{SessionID: session, RequestID: request, Question: question()})
		if err != nil {
			return err
		}
		_, err = s.FinalizeTurn(ctx, decide.Finalize{
			SessionID: session, TurnID: t.ID, Answer: events.Answer{AnswerNeutral: text},
		})
		return err
	}
}

func finished(session, request string) decide.Start {
	return decide.Start{SessionID: session, RequestID: request, Question: question(),
		Answer: &events.Answer{AnswerNeutral: text}}
}

func inOneCall(s *write.Service) recorder {
	return func(ctx context.Context, session, request string) error {
		_, err := s.StartTurn(ctx, finished(session, request))
		return err
	}
}

// inBatches has n writers record so many turns, 500 a call, in sessions of ten.
func inBatches(b *testing.B, s *write.Service, n, turns int, name string) time.Duration {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for {
				from := int(next.Add(500)) - 500
				if from >= turns {
					return
				}
				var batch []decide.Start
				for i := from; i < min(from+500, turns); i++ {
					batch = append(batch, finished(fmt.Sprintf("%s-many-%d", name, i/10), fmt.Sprint(i)))
				}
				for _, o := range s.StartTurns(b.Context(), batch) {
					if o.Err != nil {
						b.Error(o.Err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.False(b, b.Failed())
	return time.Since(began)
}
