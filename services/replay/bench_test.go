package replay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/export"
	"github.com/turnledger/turnledger/services/replay"
)

// held is how many events the log of the benchmark has.
const held = 200_000

// fill publishes turns of about half a kilobyte, a start and an answer in turns.
func fill(b *testing.B, nc *nats.Conn) {
	b.Helper()
	js := must.Get(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000)))(b)
	text := strings.Repeat("text of a turn. ", 12)
	for k := range held / 2 {
		session, request := fmt.Sprint("s", k%1000), fmt.Sprint(k)
		for _, f := range []events.Fact{asked(session, request, text), answered(session, request, text)} {
			env := must.Get(events.Encode(f, time.Now()))(b)
			must.Get(js.PublishMsgAsync(&nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header),
				Data: env.Body}))(b)
		}
	}
	<-js.PublishAsyncComplete()
}

// scan is the floor: an ordered consumer of nats.go that decodes nothing.
func scan(b *testing.B, nc *nats.Conn) time.Duration {
	b.Helper()
	js := must.Get(jetstream.New(nc))(b)
	began := time.Now()
	c := must.Get(js.OrderedConsumer(b.Context(), events.StreamName(0), jetstream.OrderedConsumerConfig{}))(b)
	in := must.Get(c.Messages())(b)
	defer in.Stop()
	for range held {
		must.Get(in.Next())(b)
	}
	return time.Since(began)
}

// BenchmarkReplay is a replay of the whole log to a file, against a bare scan of the log
// right before. Redactions are known by then, as they are in a server.
func BenchmarkReplay(b *testing.B) {
	server := natstest.ServerIn(b, b.TempDir(), embedded.None)
	log := natstest.LogOn(b, server, 1)
	nc := natstest.Connect(b, server)
	fill(b, nc)
	w := worldOn(b, log)
	began := time.Now()
	w.open(services.EventQuery{})
	b.Logf("redactions of %d events known after %s", held, time.Since(began))
	for _, format := range []export.Format{export.JSONL, export.CSV, export.Parquet} {
		b.Run(string(format), func(b *testing.B) {
			var floor, took time.Duration
			for b.Loop() {
				floor += scan(b, nc)
				began := time.Now()
				require.Equal(b, held, toFile(b, w.replay, format))
				took += time.Since(began)
			}
			n := float64(held * b.N)
			b.ReportMetric(n/took.Seconds(), "events/s")
			b.ReportMetric(n/floor.Seconds(), "scan-events/s")
			b.ReportMetric(floor.Seconds()/took.Seconds(), "ratio")
		})
	}
}

// toFile replays the log into a file and tells how many events that were.
func toFile(b *testing.B, r *replay.Replay, format export.Format) (n int) {
	b.Helper()
	f := must.Get(os.Create(filepath.Join(b.TempDir(), "out")))(b)
	out := bufio.NewWriterSize(f, 1<<20)
	add := func(line []byte) error {
		_, err := out.Write(line)
		return errors.Join(err, out.WriteByte('\n'))
	}
	end := func() error { return nil }
	if format != export.JSONL {
		table := must.Get(export.Events(format, out, true))(b)
		end = table.Close
		add = func(line []byte) error {
			row, err := export.ParseEvent(line)
			if err != nil {
				return err
			}
			return table.Write(row)
		}
	}
	s := must.Get(r.OpenEvents(b.Context(), services.EventQuery{}))(b)
	defer s.Close()
	for {
		batch, err := s.Next(b.Context())
		if errors.Is(err, io.EOF) {
			require.NoError(b, errors.Join(end(), out.Flush(), f.Close()))
			return n
		}
		require.NoError(b, err)
		for _, e := range batch {
			require.NoError(b, add(e.JSON))
		}
		n += len(batch)
	}
}
