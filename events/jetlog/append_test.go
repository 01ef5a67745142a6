package jetlog_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

func link(session string) events.Fact {
	return &events.SessionLinked{SessionID: session, IdentityID: "i"}
}

func expect(seq uint64, facts ...events.Fact) jetlog.Append {
	return jetlog.Append{Facts: facts, Expect: &seq}
}

func conflict(t *testing.T, err error, last uint64) {
	t.Helper()
	var c *jetlog.Conflict
	require.ErrorAs(t, err, &c)
	require.ErrorIs(t, err, jetlog.ErrConflict)
	require.Equal(t, last, c.Last)
}

func TestOutcomesOnOneReplica(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ctx := t.Context()
	_, err := log.Append(ctx, expect(3, logtest.Fact("s", "r1")))
	conflict(t, err, 0)
	first, err := log.Append(ctx, expect(0, logtest.Fact("s", "r1")))
	require.NoError(t, err)
	require.False(t, first.Duplicate)
	// The same again: the expectation is looked at before the id.
	_, err = log.Append(ctx, expect(0, logtest.Fact("s", "r1")))
	conflict(t, err, first.Position.Seq)
	again, err := log.Append(ctx, expect(first.Position.Seq, logtest.Fact("s", "r1")))
	require.NoError(t, err)
	require.Equal(t, jetlog.Ack{Position: first.Position, Duplicate: true}, again)
	// An atomic append is there whole, or not at all.
	_, err = log.Append(ctx, expect(0, link("s"), logtest.Fact("s", "r2")))
	conflict(t, err, first.Position.Seq)
	_, err = log.Append(ctx, jetlog.Append{Facts: []events.Fact{link("s"), logtest.Fact("s", "r1")}})
	require.ErrorIs(t, err, jetlog.ErrBatchDuplicate)
	require.Equal(t, []string{logtest.Fact("s", "r1").EventID()}, logtest.IDs(t, log, "s"))
	both, err := log.Append(ctx, expect(first.Position.Seq, link("s"), logtest.Fact("s", "r2")))
	require.NoError(t, err)
	require.Equal(t, first.Position.Seq+2, both.Position.Seq)
	// A salt makes another id.
	salted, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r1")}, Salt: "1"})
	require.NoError(t, err)
	require.False(t, salted.Duplicate)
	require.Equal(t, []string{logtest.Fact("s", "r1").EventID(), link("s").EventID(), logtest.Fact("s", "r2").EventID(),
		logtest.Fact("s", "r1").EventID()}, logtest.IDs(t, log, "s"))
}

func TestAppendThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	_, err := log.Append(t.Context(), expect(0))
	require.Error(t, err)
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("a", "r"),
		logtest.Fact(elsewhere(log, "a"), "r")}})
	require.ErrorContains(t, err, "partitions")
	for _, at := range []events.Position{{Partition: 2, Seq: 1}, {Partition: -1, Seq: 1}} {
		require.ErrorIs(t, log.Durable(t.Context(), at), jetlog.ErrNoPartition)
		_, _, err = log.At(t.Context(), at)
		require.ErrorIs(t, err, jetlog.ErrNoPartition)
		_, err = log.Head(t.Context(), at.Partition)
		require.ErrorIs(t, err, jetlog.ErrNoPartition)
		_, err = log.Tail(t.Context(), at.Partition, 0, jetlog.TailOptions{})
		require.ErrorIs(t, err, jetlog.ErrNoPartition)
	}
	_, found, err := log.At(t.Context(), events.Position{})
	require.NoError(t, err)
	require.False(t, found)
}

// elsewhere returns a session of another partition.
func elsewhere(log *jetlog.Log, session string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("s", i); log.Partition(other) != log.Partition(session) {
			return other
		}
	}
}

func TestTooLargeIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	const most = 100_000
	nc := small(t, most)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{MaxEvent: most})
	require.NoError(t, err)
	before := nc.Stats().OutBytes
	huge := logtest.Started("s", "r", strings.Repeat("x", most))
	for _, facts := range [][]events.Fact{{huge}, {logtest.Fact("s", "r1"), huge}} {
		_, err = log.Append(t.Context(), jetlog.Append{Facts: facts})
		require.ErrorIs(t, err, jetlog.ErrTooLarge)
		require.NotContains(t, err.Error(), "xxx")
	}
	require.Equal(t, before, nc.Stats().OutBytes)
	// What is just below goes in, alone and in an atomic append.
	large := strings.Repeat("x", most-1000)
	at := logtest.Add(t, log, "s", "r2", large)
	require.NoError(t, log.Durable(t.Context(), at))
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{link("s"), logtest.Started("s", "r3", large)}})
	require.NoError(t, err)
	require.Len(t, logtest.Read(t, log, "s"), 3)
}

// losing is a way to a server that carries everything, and loses what the server
// says when it is told to.
type losing struct {
	listener net.Listener
	target   string
	// lose the connection with the next word of the server.
	lose atomic.Bool
	lost chan struct{}
	all  sync.WaitGroup
}

func newLosing(t *testing.T, target string) *losing {
	u, err := url.Parse(target)
	require.NoError(t, err)
	w := &losing{target: u.Host, lost: make(chan struct{}, 10)}
	w.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.all.Go(w.accept)
	t.Cleanup(func() { _ = w.listener.Close(); w.all.Wait() })
	return w
}

func (w *losing) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		w.all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		w.all.Go(func() { w.back(in, out) })
	}
}

func (w *losing) back(client, server net.Conn) {
	defer func() { _ = client.Close(); _ = server.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if w.lose.CompareAndSwap(true, false) {
			w.lost <- struct{}{}
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// overLosing opens a log over a way that can lose an answer.
func overLosing(t *testing.T) (*losing, *jetlog.Log) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: embedded.Group,
		Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	w := newLosing(t, s.URL())
	nc, err := nats.Connect(w.listener.Addr().String(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{GateDir: s.GateDir(), Deadline: 3 * time.Second})
	require.NoError(t, err)
	return w, log
}

// The only sender of an event is told that it was the first, also when it had to ask
// twice.
func TestLostAnswerLeavesOneEvent(t *testing.T) {
	t.Parallel()
	w, log := overLosing(t)
	w.lose.Store(true)
	ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r1")}})
	require.NoError(t, err)
	<-w.lost
	require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 1}}, ack)
	require.NoError(t, log.Durable(t.Context(), ack.Position))
	require.Len(t, logtest.IDs(t, log, "s"), 1)
	// Somebody else's event stays that.
	w.lose.Store(true)
	ack, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r1")}})
	require.NoError(t, err)
	<-w.lost
	require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 1}, Duplicate: true}, ack)
}

func TestLostAnswerOfABatchLeavesItOnce(t *testing.T) {
	t.Parallel()
	w, log := overLosing(t)
	w.lose.Store(true)
	ack, err := log.Append(t.Context(), expect(0, link("s"), logtest.Fact("s", "r1")))
	require.NoError(t, err)
	<-w.lost
	require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 2}}, ack)
	require.Equal(t, []string{link("s").EventID(), logtest.Fact("s", "r1").EventID()}, logtest.IDs(t, log, "s"))
	w.lose.Store(true)
	ack, err = log.Append(t.Context(), expect(2, logtest.Fact("s", "r2")))
	require.NoError(t, err)
	<-w.lost
	require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 3}}, ack)
	// Without an expectation it is found behind what the server had shown before.
	whole := jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r3"), logtest.Fact("s", "r4")}}
	w.lose.Store(true)
	ack, err = log.Append(t.Context(), whole)
	require.NoError(t, err)
	<-w.lost
	require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 5}}, ack)
	// Somebody else's batch stays that.
	w.lose.Store(true)
	_, err = log.Append(t.Context(), whole)
	require.ErrorIs(t, err, jetlog.ErrBatchDuplicate)
	<-w.lost
	w.lose.Store(true)
	_, err = log.Append(t.Context(), expect(3, logtest.Fact("s", "r5")))
	conflict(t, err, 5)
}

// The messages of an append that was the end of a batch may stand in the middle of the next one.
func TestARefusedBatchGoesAgainBeforeOthers(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	refused, err := log.Messages(expect(7, link("s"), logtest.Fact("s", "r1")))
	require.NoError(t, err)
	other, err := log.Messages(jetlog.Append{Facts: []events.Fact{logtest.Fact("o", "r1"), logtest.Fact("o", "r2")}})
	require.NoError(t, err)
	_, err = log.Batch(t.Context(), refused)
	require.Error(t, err)
	refused[0].Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	last, err := log.Batch(t.Context(), refused, other)
	require.NoError(t, err)
	require.Equal(t, uint64(4), last)
}

func TestSilentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := natstest.ServerIn(t, t.TempDir(), embedded.Group)
	nc := natstest.Connect(t, s)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{GateDir: s.GateDir()})
	require.NoError(t, err)
	at := logtest.Add(t, log, "s", "r1", "x")
	require.NoError(t, log.Durable(t.Context(), at))
	log, err = jetlog.Open(t.Context(), nc, jetlog.Config{GateDir: s.GateDir(), Deadline: 300 * time.Millisecond})
	require.NoError(t, err)
	s.Stop()
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}})
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = log.Head(ctx, 0)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	for _, err := range log.Session(ctx, "s", 0, 10) {
		require.ErrorIs(t, err, jetlog.ErrUnavailable, "a log that can't be read is not one without history")
	}
	_, _, err = log.At(ctx, at)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	_, err = log.Last(ctx, "s")
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	_, err = log.Tail(ctx, 0, 0, jetlog.TailOptions{})
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	nc.Close()
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}})
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
}

func TestCallerThatGoesAwayLeavesOneEvent(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	const requests = 300
	var want []string
	given := 0
	for i := range requests {
		f := logtest.Fact("s", fmt.Sprint(i))
		want = append(want, f.EventID())
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(400))*time.Microsecond)
		if _, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}}); err != nil {
			require.ErrorIs(t, err, jetlog.ErrUnavailable)
			given++
		}
		cancel()
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
		require.NoError(t, err)
	}
	t.Logf("%d of %d callers went away", given, requests)
	require.Equal(t, want, logtest.IDs(t, log, "s"))
}
