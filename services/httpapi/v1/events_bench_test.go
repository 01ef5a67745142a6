package v1_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
)

// BenchmarkEvents reads the whole log over HTTP, against a bare scan of it by an ordered
// consumer right before.
func BenchmarkEvents(b *testing.B) {
	const held = 100_000
	server := natstest.ServerIn(b, b.TempDir(), embedded.None)
	log := natstest.LogOn(b, server, 1)
	js, err := jetstream.New(natstest.Connect(b, server), jetstream.WithPublishAsyncMaxPending(4000))
	require.NoError(b, err)
	for k := range held {
		session, request := fmt.Sprint("s", k%1000), fmt.Sprint(k)
		env, err := events.Encode(&events.TurnStarted{
			TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: strings.Repeat("text of a turn. ", 12)},
		}, time.Now())
		require.NoError(b, err)
		_, err = js.PublishMsgAsync(&nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body})
		require.NoError(b, err)
	}
	<-js.PublishAsyncComplete()
	r := replay.New(log, owners.New(log, nil))
	natstest.Run(b, r.Run)
	s := startOn(b, log, func(c *config, _ *history.Config, _ *read.Config) { c.Events = r })
	read := func(path string) {
		resp, err := http.Get(s.url + path)
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		require.Positive(b, n)
	}
	read("/v1/events?to=0:1")
	var floor, took time.Duration
	for b.Loop() {
		began := time.Now()
		c, err := js.OrderedConsumer(b.Context(), events.StreamName(0), jetstream.OrderedConsumerConfig{})
		require.NoError(b, err)
		in, err := c.Messages()
		require.NoError(b, err)
		for range held {
			_, err := in.Next()
			require.NoError(b, err)
		}
		in.Stop()
		floor += time.Since(began)
		began = time.Now()
		read("/v1/events")
		took += time.Since(began)
	}
	b.ReportMetric(float64(held*b.N)/took.Seconds(), "events/s")
	b.ReportMetric(floor.Seconds()/took.Seconds(), "ratio")
}
