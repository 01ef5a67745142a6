package jetlog_test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

func TestForeignMessagesHideNothing(t *testing.T) {
	t.Parallel()
	for name, foreign := range logtest.ForeignMessages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Server(t)
			nc := natstest.Connect(t, s)
			log := natstest.LogOn(t, s, 1)
			between(t, log, func() {
				foreign.Subject = events.SessionSubject("s")
				_, err := nc.RequestMsg(foreign, 5*time.Second)
				require.NoError(t, err)
			})
		})
	}
}

func TestBrokenHeadersHideNothing(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"NATS/1.0\r\nno colon\r\n\r\n", "NATS/1.0\r\n\r\n", "NATS/1.0 12\r\n\r\n",
		"NATS/1.0\r\na: b", "HTTP/1.1\r\na: b\r\n\r\n", "NATS/1.0\r\n: x\r\n\r\n",
		"NATS/1.0\r\na: b\r\n\r\nc: d\r\n\r\n",
		"NATS/1.0\r\nStatus: 404\r\nDescription: Message Not Found\r\n\r\nc: d\r\n\r\n",
		"NATS/1.0\r\nStatus: 204\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\nc: d\r\n\r\n",
		"NATS/1.0 404 Message Not Found\r\n\r\n"} {
		t.Run(strings.ReplaceAll(header, "\r\n", "|"), func(t *testing.T) {
			t.Parallel()
			s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: embedded.Group,
				Listen: "127.0.0.1:0"})
			require.NoError(t, err)
			t.Cleanup(s.Stop)
			log := natstest.LogOn(t, s, 1)
			between(t, log, func() { publishRaw(t, s.URL(), events.SessionSubject("s"), header, "") })
		})
	}
}

// between holds that a session and a tail show the events around a foreign one.
func between(t *testing.T, log *jetlog.Log, foreign func()) {
	t.Helper()
	tail, err := log.Tail(t.Context(), 0, 0, jetlog.TailOptions{})
	require.NoError(t, err)
	defer tail.Close()
	add := func(request string) {
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Started("s", request, "x")}})
		require.NoError(t, err)
	}
	add("r1")
	foreign()
	add("r2")
	add("r3")
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	var got []jetlog.Message
	for len(got) < 4 {
		batch, err := tail.Next(ctx)
		require.NoError(t, err, "the tail stops after %d", len(got))
		got = append(got, batch...)
	}
	for i, m := range got {
		require.EqualValues(t, i+1, m.Position.Seq)
		require.Equal(t, i != 1, m.Recorded().Fact != nil)
	}
	head, err := log.Head(ctx, 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, head.Seq)
	var seqs []uint64
	for e, err := range log.Session(ctx, "s", 0, math.MaxUint64) {
		require.NoError(t, err)
		require.Equal(t, e.Position.Seq != 2, e.Fact != nil, "%d", e.Position.Seq)
		seqs = append(seqs, e.Position.Seq)
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, seqs)
	since, err := log.SeqAt(ctx, 0, got[1].Time)
	require.NoError(t, err)
	require.EqualValues(t, 1, since)
	for seq := range uint64(4) {
		_, found, err := log.At(ctx, events.Position{Seq: seq + 1})
		require.NoError(t, err)
		require.True(t, found)
	}
}

// publishRaw speaks NATS by hand, and waits for the PubAck.
func publishRaw(t *testing.T, address, subject, header, body string) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB ack "+
		"1\r\nHPUB %s ack %d %d\r\n%s%s\r\n",
		subject, len(header), len(header)+len(body), header, body)
	require.NoError(t, err)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "MSG ack") {
			require.True(t, lines.Scan())
			require.Contains(t, lines.Text(), `"seq":2`)
			return
		}
	}
	t.Fatal("no PubAck")
}
