package jetlog_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
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
				must.Get(nc.RequestMsg(foreign, hang.Limit))(t)
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
	require.EqualValues(t, 1, must.Get(log.SeqAt(t.Context(), 0, got[1].Time))(t))
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

// TestReadSlowlyASessionIsTheSame reads sessions whole, in part, and where there is none, also with events that no one
// can read directly.
func TestReadSlowlyASessionIsTheSame(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	nc := natstest.Connect(t, server)
	for i := range 90 {
		logtest.Add(t, log, fmt.Sprint("s", i%3), fmt.Sprint(i), "x")
	}
	for _, m := range logtest.ForeignMessages() {
		m.Subject = events.SessionSubject("s0")
		must.Get(nc.RequestMsg(m, hang.Limit))(t)
	}
	last := logtest.Add(t, log, "s0", "last", "x")
	all := func(in iter.Seq2[events.Recorded, error]) (out []events.Recorded) {
		for e, err := range in {
			require.NoError(t, err)
			out = append(out, e)
		}
		return out
	}
	for _, session := range []string{"s0", "s1", "none"} {
		for _, upTo := range []uint64{0, 1, 2, 50, last.Seq - 1, last.Seq, math.MaxUint64} {
			for _, after := range []uint64{0, 1, 40, last.Seq} {
				want := all(log.Session(t.Context(), session, after, upTo))
				require.Equal(t, want, all(jetlog.Slowly{Log: log}.Session(t.Context(), session, after, upTo)),
					"%s after %d up to %d", session, after, upTo)
			}
		}
	}
	require.Len(t, all(jetlog.Slowly{Log: log}.Session(t.Context(), "s1", 0, math.MaxUint64)), 30)

	asked := must.Get(nc.SubscribeSync("$JS.API.DIRECT.GET.>"))(t)
	require.NoError(t, nc.Flush())
	require.Len(t, all(jetlog.Slowly{Log: log}.Session(t.Context(), "s1", 0, 60)), 20)
	for range 21 { // and once for what lies behind
		m := must.Get(asked.NextMsg(hang.Limit))(t)
		require.NotContains(t, string(m.Data), "batch", "no more than one event is asked for")
	}
}

// Between a session's first and last event something is asked for by its sequence in
// every 4 MB of the log, and nothing beyond them.
func TestWarmAsksForWhatASessionIsSpreadOver(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	add := func(session, request string) uint64 {
		return logtest.Add(t, log, session, request, strings.Repeat("x", 1<<20)).Seq
	}
	add("other", "before")
	first := add("s", "1")
	for n := range 20 {
		add("other", string(rune('a'+n)))
	}
	last := add("s", "2")
	add("other", "after")

	nc := natstest.Connect(t, s)
	asked := must.Get(nc.SubscribeSync("$JS.API.STREAM.MSG.GET." + events.StreamName(0)))(t)
	require.NoError(t, nc.Flush())
	require.NoError(t, log.Warm(t.Context(), "s"))
	require.NoError(t, log.Warm(t.Context(), "nobody"))
	require.NoError(t, nc.Publish(asked.Subject, []byte(`{"end":true}`)))
	at := []uint64{first}
	for {
		m := must.Get(asked.NextMsgWithContext(t.Context()))(t)
		var q struct {
			Seq  uint64
			Next string `json:"next_by_subj"`
			End  bool
		}
		require.NoError(t, json.Unmarshal(m.Data, &q))
		if q.End {
			break
		}
		again := q.Seq == at[len(at)-1] // a question that is long without an answer is repeated
		if q.Seq > 0 && q.Next == "" && !again {
			at = append(at, q.Seq)
		}
	}
	at = append(at, last)
	for n := range at[1:] {
		require.Less(t, at[n], at[n+1])
		require.LessOrEqual(t, at[n+1]-at[n], uint64(5), "events of 1 MB")
	}
}

// TestSomeEventsAreThoseOfTheirPlaces asks for more events than are asked for at once, also where there is none.
func TestSomeEventsAreThoseOfTheirPlaces(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const all, erased = 40, 7
	for i := range all {
		logtest.Add(t, log, fmt.Sprint("s", i%3), fmt.Sprint("r", i+1), "x")
	}
	must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: erased}))(t)
	var asked []uint64
	for seq := uint64(1); seq <= all+2; seq += 2 {
		asked = append(asked, seq)
	}
	found := must.Get(log.Some(t.Context(), 0, asked))(t)
	want := map[uint64]string{}
	for _, seq := range asked {
		if seq != erased && seq <= all {
			want[seq] = fmt.Sprintf("s%d r%d", (seq-1)%3, seq)
		}
	}
	got := map[uint64]string{}
	for _, e := range found {
		got[e.Position.Seq] = e.SessionID + " " + e.Fact.(*events.TurnStarted).RequestID
	}
	require.Equal(t, want, got)
	found = must.Get(log.Some(t.Context(), 0, nil))(t)
	require.Empty(t, found)
	require.Error(t, must.Err(log.Some(t.Context(), 1, asked)), "there is no such partition")
}

// TestTheLastOfASessionIsSeen holds that Seen follows a session's events, whatever other sessions have.
func TestTheLastOfASessionIsSeen(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	seen := func(want uint64, session string) {
		t.Helper()
		require.Equal(t, want, must.Get(log.Seen(t.Context(), session))(t))
	}
	seen(0, "s")
	logtest.Add(t, log, "s", "r1", "x")
	logtest.Add(t, log, "o", "r1", "x")
	seen(1, "s")
	logtest.Add(t, log, "s", "r2", "x")
	seen(3, "s")
	seen(2, "o")
	seen(0, "none")
	must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: 3}))(t)
	seen(1, "s")
}

// A position that the log does not hold yet may come from a client, or from a backup that was restored. To read there
// changes nothing: each write after it waits for an fsync of its own, and no reader takes the log for that long.
func TestReadsBeyondTheHeadLeaveTheGateShut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	log, _, _ := logtest.Gated(t)
	disk := disktest.New()
	logtest.SetFsync(t, log, 0, disk.Fsync)
	first := logtest.Add(t, log, "s", "r1", "one")
	require.NoError(t, log.Durable(ctx, first))
	for _, beyond := range []uint64{first.Seq + 1, first.Seq + 1000, 1 << 40, math.MaxUint64} {
		head := logtest.Head(t, log, 0)
		at := events.Position{Partition: 0, Seq: max(beyond, head+1)}
		_, found := must.Two(log.At(ctx, at))(t)
		require.False(t, found)
		require.Len(t, must.Get(log.Some(ctx, 0, []uint64{at.Seq, first.Seq}))(t), 1)
		require.ErrorIs(t, log.Durable(ctx, at), jetlog.ErrStream)
		still := must.Get(log.Still(ctx, 0, first.Seq, at.Seq))(t)
		require.False(t, still, "nothing was erased there: the log has yet to come there")
		var mark jetlog.Watermark
		mark.Advance(head)
		brief := deadline(t, 300*time.Millisecond)
		require.ErrorIs(t, log.Reached(brief, &mark, at), context.DeadlineExceeded)
		require.Equal(t, head, mark.At())
		for _, err := range log.Session(ctx, "s", at.Seq-1, math.MaxUint64) {
			require.NoError(t, err)
		}
		for range 5 {
			before := disk.Syncs()
			ack := logtest.Add(t, log, "s", time.Now().String(), "two")
			require.NoError(t, log.Durable(ctx, ack))
			require.Greater(t, disk.Syncs(), before, "acknowledged without an fsync after a read at %s", at)
		}
	}
}
