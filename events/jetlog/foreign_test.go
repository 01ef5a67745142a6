package jetlog_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
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
				must.Get(nc.RequestMsg(foreign, 5*time.Second))(t)
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
			ns := plainServer(t, server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20})
			log := openOn(t, connectTo(t, ns), jetlog.Config{})
			between(t, log, func() { publishRaw(t, ns, events.SessionSubject("s"), header) })
		})
	}
}

// between holds that a session and a tail show the events around a foreign one.
func between(t *testing.T, log *jetlog.Log, foreign func()) {
	t.Helper()
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	logtest.Add(t, log, "s", "r1", "x")
	foreign()
	logtest.Add(t, log, "s", "r2", "x")
	logtest.Add(t, log, "s", "r3", "x")
	var got []jetlog.Message
	for len(got) < 4 {
		got = append(got, next(t, tail)...)
	}
	for i, m := range got {
		require.EqualValues(t, i+1, m.Position.Seq)
		require.Equal(t, i != 1, m.Recorded().Fact != nil)
	}
	require.EqualValues(t, 4, logtest.Head(t, log, 0))
	session := logtest.Read(t, log, "s")
	require.Len(t, session, 4)
	for i, e := range session {
		require.EqualValues(t, i+1, e.Position.Seq)
		require.Equal(t, i != 1, e.Fact != nil, "%d", e.Position.Seq)
	}
	since := must.Get(log.SeqAt(t.Context(), 0, got[1].Time))(t)
	require.EqualValues(t, 1, since)
	for seq := range uint64(4) {
		_, found := must.Two(log.At(t.Context(), events.Position{Seq: seq + 1}))(t)
		require.True(t, found)
	}
}

// publishRaw speaks NATS by hand, and waits for the PubAck.
func publishRaw(t *testing.T, ns *server.Server, subject, header string) {
	t.Helper()
	conn := must.Get(ns.InProcessConn())(t)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(hang.Limit)))
	go func() { // what the server says first waits for its reader
		_, _ = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB ack "+
			"1\r\nHPUB %s ack %d %d\r\n%s\r\n", subject, len(header), len(header), header)
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "MSG ack") {
			require.True(t, lines.Scan())
			require.Contains(t, lines.Text(), `"seq":2`)
			return
		}
	}
	t.Fatal("no PubAck")
}
