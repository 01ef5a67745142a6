package rebuild_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
)

// benchTurns of ten a session, with a link: about 100,000 events.
const benchTurns = 50_000

// benchLog is a log of sessions that go on at once, 64 at a time.
func benchLog(b *testing.B) (*nats.Conn, *jetlog.Log) {
	b.Helper()
	srv := natstest.Server(b)
	log := natstest.LogOn(b, srv, 1)
	text := strings.Repeat("It should be with you soon. ", 12)
	var g errgroup.Group
	for w := range 64 {
		g.Go(func() error {
			for n := w; n < benchTurns/10; n += 64 {
				session := fmt.Sprintf("session-%06d", n)
				facts := []events.Fact{&events.SessionLinked{SessionID: session, IdentityID: fmt.Sprint("user-", n/10)}}
				for i := range 10 {
					request := fmt.Sprintf("request-%06d-%d", n, i)
					id := events.TurnID(session, request)
					facts = append(facts,
						&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
							Question: events.Question{PipelineName: "support", QuestionNeutral: text[:150],
								Metadata: []byte(`{"channel":"web"}`)}},
						&events.TurnFinalized{TurnID: id, SessionID: session,
							Answer: events.Answer{AnswerNeutral: text[:300]}})
				}
				for _, f := range facts {
					if _, err := log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{f}}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return natstest.Connect(b, srv), log
}

// scan reads the stream with an ordered consumer and decodes nothing.
func scan(b *testing.B, nc *nats.Conn, head uint64) time.Duration {
	b.Helper()
	js := must.Get(jetstream.New(nc))(b)
	began := time.Now()
	c := must.Get(js.OrderedConsumer(b.Context(), events.StreamName(0), jetstream.OrderedConsumerConfig{}))(b)
	in := must.Get(c.Messages(jetstream.PullMaxMessages(2000)))(b)
	defer in.Stop()
	for n := uint64(0); n < head; n++ {
		must.Get(in.Next())(b)
	}
	return time.Since(began)
}

// beside measures work against a bare scan in turns.
func beside(b *testing.B, work func(log *jetlog.Log) time.Duration) {
	nc, log := benchLog(b)
	head := must.Get(log.Head(b.Context(), 0))(b)
	var bare, took time.Duration
	for b.Loop() {
		bare += scan(b, nc, head.Seq)
		took += work(log)
	}
	b.ReportMetric(bare.Seconds()/took.Seconds(), "x_scan")
	b.ReportMetric(float64(b.N)*float64(head.Seq)/took.Seconds(), "events/s")
	b.ReportMetric(float64(b.N)*float64(head.Seq)/bare.Seconds(), "scan_events/s")
	b.ReportMetric(0, "ns/op")
}

func rebuildIn(b *testing.B, log *jetlog.Log, v view) time.Duration {
	b.Helper()
	began := time.Now()
	r := must.Get(rebuild.Begin(b.Context(), log, v, v, rebuild.Config{Rules: rules}))(b)
	require.NoError(b, r.Run(b.Context()))
	return time.Since(began)
}

func BenchmarkRebuildMemory(b *testing.B) {
	beside(b, func(log *jetlog.Log) time.Duration { return rebuildIn(b, log, openMemory(b, log)) })
}

func BenchmarkVerifyMemory(b *testing.B) {
	var v *view
	beside(b, func(log *jetlog.Log) time.Duration {
		if v == nil {
			of := openMemory(b, log)
			rebuildIn(b, log, of)
			v = &of
		}
		return verifyIn(b, log, *v)
	})
}

func verifyIn(b *testing.B, log *jetlog.Log, v view) time.Duration {
	b.Helper()
	began := time.Now()
	must.Get(rebuild.NewVerification(log, v, rebuild.Config{Rules: rules}).Run(b.Context(), 0,
		func(d projections.Difference) error { return fmt.Errorf("%+v", d) }))(b)
	return time.Since(began)
}
