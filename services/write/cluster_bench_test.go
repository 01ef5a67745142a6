//go:build linux

package write_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
)

// onNodes opens a log of three replicas.
func onNodes(b *testing.B, nodes *natstest.Nodes) *jetlog.Log {
	b.Helper()
	return must.Get(jetlog.Open(b.Context(), nodes.Connect(b), jetlog.Config{Replicas: 3, Outside: true}))(b)
}

// plainly publishes the same events as messages, with nothing around it, into a stream of
// the same kind. Where read is not nil it waits for each until a consumer has brought it.
func plainly(b *testing.B, nodes *natstest.Nodes, stream string, read *jetlog.Watermark) recorder {
	b.Helper()
	js := must.Get(jetstream.New(nodes.Connect(b)))(b)
	must.Get(js.CreateStream(b.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"},
		Replicas: 3, AllowDirect: true, AllowAtomicPublish: true}))(b)
	if read != nil {
		follow(b, js, stream, read)
	}
	publish := func(ctx context.Context, f events.Fact) error {
		env, err := events.Encode(f, time.Now())
		if err != nil {
			return err
		}
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: stream + "." + env.Subject, Header: nats.Header(env.Header),
			Data: env.Body})
		if err != nil || read == nil {
			return err
		}
		return read.Wait(ctx, ack.Sequence)
	}
	return func(ctx context.Context, session, request string) error {
		start, final := bareTurn(session, request)
		if err := publish(ctx, start); err != nil {
			return err
		}
		return publish(ctx, final)
	}
}

// follow raises a mark with what an ordered consumer brings, which is made again where it is lost.
func follow(b *testing.B, js jetstream.JetStream, stream string, read *jetlog.Watermark) {
	b.Helper()
	c := must.Get(js.OrderedConsumer(b.Context(), stream, jetstream.OrderedConsumerConfig{}))(b)
	in := must.Get(c.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil {
			read.Advance(meta.Sequence.Stream)
		}
	}, jetstream.PullMaxMessages(1000), jetstream.PullHeartbeat(time.Second)))(b)
	b.Cleanup(in.Stop)
}

// BenchmarkClusterRecordTurn sets turns (start and finalize) of 64 writers, on three nodes
// that sync every write, against plain JetStream publishes of the same events by 64, and
// against those where each waits until its event has been read back, which is the least
// that a writer does who answers from the log; in turns of one run. Asked for: at least 0.8
// of the plain ones.
func BenchmarkClusterRecordTurn(b *testing.B) {
	const writers, rounds = 64, 3
	nodes := natstest.StartNodes(b, natstest.NodesOptions{})
	all := []recorder{throughService(b, onNodes(b, nodes)), plainly(b, nodes, "PLAIN", nil), plainly(b, nodes, "READ",
		&jetlog.Watermark{})}
	turns := max(b.N/rounds, 10*writers)
	took := make([]time.Duration, len(all))
	b.ResetTimer()
	for round := range rounds {
		for i, record := range all {
			took[i] += spread(b, writers, turns, string(rune('a'+round)), record)
		}
	}
	rate := func(i int) float64 { return float64(rounds*turns) / took[i].Seconds() }
	b.ReportMetric(rate(0), "turns/s")
	b.ReportMetric(rate(1), "plain-turns/s")
	b.ReportMetric(rate(2), "read-turns/s")
	b.ReportMetric(rate(0)/rate(1), "x_plain")
	b.ReportMetric(rate(0)/rate(2), "x_read")
	b.ReportMetric(0, "ns/op")
}

// answered is one write: when it was asked for and answered.
type answered struct{ asked, answered time.Time }

// BenchmarkClusterLeaderKill records turns, 64 writers, and kills the leader in the middle. The
// seconds without a leader are those from the kill to the first write that was both asked
// for and answered after it; writes that were under way in them are left out of p99. Asked for: under 50 ms.
func BenchmarkClusterLeaderKill(b *testing.B) {
	const writers = 64
	nodes := natstest.StartNodes(b, natstest.NodesOptions{})
	service := run(b, onNodes(b, nodes))
	var mu sync.Mutex
	var all []answered
	var over atomic.Bool
	// until is one write, asked for until it is answered.
	until := func(write func() error) {
		for {
			asked := time.Now()
			if write() == nil {
				mu.Lock()
				all = append(all, answered{asked, time.Now()})
				mu.Unlock()
				return
			}
		}
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; !over.Load(); i++ {
				session, request := fmt.Sprint(w, "-", i/10), fmt.Sprint(i)
				until(func() error {
					_, err := service.StartTurn(b.Context(), decide.Start{SessionID: session, RequestID: request,
						Question: question()})
					return err
				})
				until(func() error {
					_, err := service.FinalizeTurn(b.Context(), decide.Finalize{SessionID: session,
						TurnID: events.TurnID(session, request), Answer: events.Answer{AnswerNeutral: text}})
					return err
				})
			}
		})
	}
	<-time.After(10 * time.Second)
	leader := nodes.Leader(b, events.StreamName(0))
	killed := time.Now()
	nodes.Kill(b, leader)
	<-time.After(20 * time.Second)
	over.Store(true)
	wg.Wait()
	report(b, all, killed)
}

func report(b *testing.B, all []answered, killed time.Time) {
	b.Helper()
	led := time.Time{}
	for _, a := range all {
		if a.asked.After(killed) && (led.IsZero() || a.answered.Before(led)) {
			led = a.answered
		}
	}
	require.False(b, led.IsZero(), "no write after the kill")
	var took []time.Duration
	for _, a := range all {
		if a.answered.Before(killed) || a.asked.After(led) {
			took = append(took, a.answered.Sub(a.asked))
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(led.Sub(killed).Seconds(), "leaderless-s")
	b.ReportMetric(float64(len(all))/2/30, "turns/s")
	b.ReportMetric(0, "ns/op")
}
