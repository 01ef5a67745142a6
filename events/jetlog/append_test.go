package jetlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	outcomes(t, natstest.Log(t, 1), false)
}

// outcomes holds a log to what an append may come to. What is appended again is known by its id before the expectation
// is looked at, or after that.
func outcomes(t *testing.T, log *jetlog.Log, idFirst bool) {
	t.Helper()
	ctx, one, two := t.Context(), logtest.Fact("s", "r1"), logtest.Fact("s", "r2")
	_, err := log.Append(ctx, expect(3, one))
	conflict(t, err, 0)
	first := must.Get(log.Append(ctx, expect(0, one)))(t)
	require.False(t, first.Duplicate)
	expected := uint64(0)
	if !idFirst {
		_, err = log.Append(ctx, expect(0, one))
		conflict(t, err, first.Position.Seq)
		expected = first.Position.Seq
	}
	again := must.Get(log.Append(ctx, expect(expected, one)))(t)
	require.Equal(t, jetlog.Ack{Position: first.Position, Duplicate: true}, again)
	_, err = log.Append(ctx, expect(0, two))
	conflict(t, err, first.Position.Seq)
	// An atomic append is there whole, or not at all.
	_, err = log.Append(ctx, expect(0, link("s"), two))
	conflict(t, err, first.Position.Seq)
	must.Fail(log.Append(ctx, jetlog.Append{Facts: []events.Fact{link("s"), one}}))(t, jetlog.ErrBatchDuplicate)
	require.Equal(t, []string{one.EventID()}, logtest.IDs(t, log, "s"))
	both := must.Get(log.Append(ctx, expect(first.Position.Seq, link("s"), two)))(t)
	require.Equal(t, first.Position.Seq+2, both.Position.Seq)
	// A salt makes another id.
	salted := must.Get(log.Append(ctx, jetlog.Append{Facts: []events.Fact{one}, Salt: "1"}))(t)
	require.False(t, salted.Duplicate)
	require.Equal(t, []string{one.EventID(), link("s").EventID(), two.EventID(), one.EventID()},
		logtest.IDs(t, log, "s"))
}

func TestAppendThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	require.Error(t, must.Err(log.Append(t.Context(), expect(0))))
	apart := []events.Fact{logtest.Fact("a", "r"), logtest.Fact(elsewhere(log, "a"), "r")}
	require.ErrorContains(t, must.Err(log.Append(t.Context(), jetlog.Append{Facts: apart})), "partitions")
	for _, at := range []events.Position{{Partition: 2, Seq: 1}, {Partition: -1, Seq: 1}} {
		require.ErrorIs(t, log.Durable(t.Context(), at), jetlog.ErrNoPartition)
		_, _, err := log.At(t.Context(), at)
		require.ErrorIs(t, err, jetlog.ErrNoPartition)
		must.Fail(log.Head(t.Context(), at.Partition))(t, jetlog.ErrNoPartition)
		must.Fail(log.Tail(t.Context(), at.Partition, 0, jetlog.TailOptions{}))(t, jetlog.ErrNoPartition)
	}
	_, found := must.Two(log.At(t.Context(), events.Position{}))(t)
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
	log := openOn(t, nc, jetlog.Config{MaxEvent: most})
	before := nc.Stats().OutBytes
	huge := logtest.Started("s", "r", strings.Repeat("x", most))
	for _, facts := range [][]events.Fact{{huge}, {logtest.Fact("s", "r1"), huge}} {
		_, err := log.Append(t.Context(), jetlog.Append{Facts: facts})
		require.ErrorIs(t, err, jetlog.ErrTooLarge)
		require.NotContains(t, err.Error(), "xxx")
	}
	require.Equal(t, before, nc.Stats().OutBytes)
	// What is just below goes in, alone and in an atomic append.
	large := strings.Repeat("x", most-1000)
	at := logtest.Add(t, log, "s", "r2", large)
	require.NoError(t, log.Durable(t.Context(), at))
	logtest.Append(t, log, link("s"), logtest.Started("s", "r3", large))
	require.Len(t, logtest.Read(t, log, "s"), 3)
}

// overLosing opens a log over a wire. lose has the next answer never arrive, nor the connection stay.
func overLosing(t *testing.T) (log *jetlog.Log, lose func() (lost <-chan struct{})) {
	t.Helper()
	w := newWire(t)
	return openOn(t, connectTo(t, w), jetlog.Config{Deadline: 3 * time.Second}), func() <-chan struct{} {
		lost := make(chan struct{})
		first := sync.OnceFunc(func() { close(lost) })
		w.do(nil, func(string) error {
			w.do(nil, nil)
			first()
			return errLostConnection
		})
		return lost
	}
}

// The only sender of an event is told that it was the first, also when it had to ask
// twice.
func TestLostAnswerLeavesOneEvent(t *testing.T) {
	t.Parallel()
	log, lose := overLosing(t)
	for _, duplicate := range []bool{false, true} { // then it is somebody else's event, and stays that
		lost := lose()
		ack := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r1")}}))(t)
		<-lost
		require.Equal(t, jetlog.Ack{Position: events.Position{Seq: 1}, Duplicate: duplicate}, ack)
		require.Len(t, logtest.IDs(t, log, "s"), 1)
	}
}

func TestLostAnswerOfABatchLeavesItOnce(t *testing.T) {
	t.Parallel()
	log, lose := overLosing(t)
	appended := func(a jetlog.Append) (uint64, error) {
		lost := lose()
		ack, err := log.Append(t.Context(), a)
		<-lost
		require.False(t, ack.Duplicate)
		return ack.Position.Seq, err
	}
	// Without an expectation it is found behind what the server had shown before.
	whole := jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r3"), logtest.Fact("s", "r4")}}
	for _, c := range []struct {
		jetlog.Append
		last uint64
	}{{expect(0, link("s"), logtest.Fact("s", "r1")), 2}, {expect(2, logtest.Fact("s", "r2")), 3}, {whole, 5}} {
		seq := must.Get(appended(c.Append))(t)
		require.Equal(t, c.last, seq)
		require.Len(t, logtest.IDs(t, log, "s"), int(c.last))
	}
	must.Fail(appended(whole))(t, jetlog.ErrBatchDuplicate, "somebody else's batch stays that")
	_, err := appended(expect(3, logtest.Fact("s", "r5")))
	conflict(t, err, 5)
}

// The messages of an append that was the end of a batch may stand in the middle of the next one.
func TestARefusedBatchGoesAgainBeforeOthers(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	refused := must.Get(log.Messages(expect(7, link("s"), logtest.Fact("s", "r1"))))(t)
	other, err := log.Messages(jetlog.Append{Facts: []events.Fact{logtest.Fact("o", "r1"), logtest.Fact("o", "r2")}})
	require.NoError(t, err)
	require.Error(t, must.Err(log.Batch(t.Context(), refused)))
	refused[0].Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	last := must.Get(log.Batch(t.Context(), refused, other))(t)
	require.Equal(t, uint64(4), last)
}

func TestSilentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := natstest.ServerIn(t, t.TempDir(), embedded.Group)
	nc := natstest.Connect(t, s)
	log := openOn(t, nc, jetlog.Config{GateDir: s.GateDir(), Deadline: 300 * time.Millisecond})
	at := logtest.Add(t, log, "s", "r1", "x")
	require.NoError(t, log.Durable(t.Context(), at))
	s.Stop()
	_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}})
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	must.Fail(log.Head(ctx, 0))(t, jetlog.ErrUnavailable)
	for _, err := range log.Session(ctx, "s", 0, 10) {
		require.ErrorIs(t, err, jetlog.ErrUnavailable, "a log that can't be read is not one without history")
	}
	_, _, err = log.At(ctx, at)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	must.Fail(log.Last(ctx, "s"))(t, jetlog.ErrUnavailable)
	must.Fail(log.Tail(ctx, 0, 0, jetlog.TailOptions{}))(t, jetlog.ErrUnavailable)
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
		_, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		if err != nil {
			require.ErrorIs(t, err, jetlog.ErrUnavailable)
			given++
		}
		cancel()
		must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
	}
	t.Logf("%d of %d callers went away", given, requests)
	require.Equal(t, want, logtest.IDs(t, log, "s"))
}
