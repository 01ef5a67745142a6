package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
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
	require.False(t, must.Get(log.Append(ctx, jetlog.Append{Facts: []events.Fact{one}, Salt: "1"}))(t).Duplicate)
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
		require.ErrorIs(t, must.Err(log.At(t.Context(), at)), jetlog.ErrNoPartition)
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
	huge := turntest.Started("s", "r", strings.Repeat("x", most))
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
	logtest.Append(t, log, link("s"), turntest.Started("s", "r3", large))
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
		require.Equal(t, c.last, must.Get(appended(c.Append))(t))
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
	require.Equal(t, uint64(4), must.Get(log.Batch(t.Context(), refused, other))(t))
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
	require.ErrorIs(t, must.Err(log.At(ctx, at)), jetlog.ErrUnavailable)
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

// A write that the server can't take is refused with the reason, and not tried until its deadline.
func TestWritesThatAreNotTakenAreRefused(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	var full error
	log := openOn(t, nc, jetlog.Config{Deadline: time.Hour, Writable: func() error { return full }})
	logtest.Add(t, log, "s", "r1", "x")
	// It answers nobody, since a write has failed: here, since its stream listens elsewhere.
	hear := subjectsOf(t, nc)
	hear("elsewhere")
	full = errors.New("no space left on device")
	for range 2 {
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}})
		require.ErrorIs(t, err, jetlog.ErrNoWrites)
		require.ErrorIs(t, err, full)
		m := must.Get(pubsub.NewMessage(logtest.Fact("s", "r2")))(t)
		require.ErrorIs(t, pubsub.NewPublisher(log, pubsub.PublisherConfig{}).Publish("s", m), jetlog.ErrNoWrites)
	}
	full = nil
	hear()
	logtest.Add(t, log, "s", "r2", "it takes writes again")
}

// subjectsOf returns a function that lets the log's stream hear some subjects and no others, or its own again.
func subjectsOf(t *testing.T, nc *nats.Conn) (hear func(subjects ...string)) {
	t.Helper()
	js, own := natstest.JetStream(t, nc), natstest.Stream(t, nc, events.StreamName(0)).CachedInfo().Config
	return func(subjects ...string) {
		cfg := own
		if len(subjects) > 0 {
			cfg.Subjects = subjects
		}
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
	}
}

// A log that is slow is not one that is silent: while its stream takes what others write, an append is tried until its
// caller gives up. Once nothing is taken any more, it ends at the deadline.
func TestASlowLogIsWaitedFor(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	log, hear := openOn(t, nc, jetlog.Config{Deadline: 2 * time.Second}), subjectsOf(t, nc)
	for n, facts := range [][]events.Fact{
		{logtest.Fact("one", "r1")}, {link("many"), logtest.Fact("many", "r1")},
	} {
		hear(events.SessionSubject("busy"))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				logtest.Add(t, log, "busy", fmt.Sprint(n, k), "x")
				<-time.After(20 * time.Millisecond)
			}
		})
		_, err := log.Append(deadline(t, 2500*time.Millisecond), jetlog.Append{Facts: facts})
		require.ErrorIs(t, err, jetlog.ErrUnavailable, "its caller gives up")
		appended := make(chan error, 1)
		all.Go(func() {
			_, err := log.Append(t.Context(), jetlog.Append{Facts: facts})
			appended <- err
		})
		<-time.After(5 * time.Second) // more than two deadlines
		require.Empty(t, appended, "it is not given up")
		hear()
		require.NoError(t, <-appended)
		hear(events.SessionSubject("busy"))
		stop()
		all.Wait()
		began := time.Now()
		_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("silent", fmt.Sprint(n))}})
		require.ErrorIs(t, err, jetlog.ErrUnavailable, "nothing is taken any more")
		require.Less(t, time.Since(began), hang.Limit)
	}
	hear()
	require.Len(t, logtest.IDs(t, log, "one"), 1)
	require.Len(t, logtest.IDs(t, log, "many"), 2)
	require.Empty(t, logtest.IDs(t, log, "silent"))
}

// A leader that has passed an append over says that it is in process for as long as it keeps ids, which is two minutes.
// It is asked to step down, and the next one takes the append under the same id.
//
//conformance:l4
func TestALeaderThatPassedAnAppendOverStepsDown(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	nc := c.Connect(t)
	log, hear := openOn(t, nc, jetlog.Config{Outside: true, Deadline: 10 * time.Second}), subjectsOf(t, nc)
	logtest.Add(t, log, "s", "r1", "x")
	hear("elsewhere")
	leader := c.Connect(t)
	passedOver := must.Get(leader.Subscribe(events.SessionSubject("s"), func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":409,"err_code":10158,"description":"in process"}}`))
	}))(t)
	down := make(chan struct{}, 9)
	must.Get(leader.Subscribe("$JS.API.STREAM.LEADER.STEPDOWN."+events.StreamName(0), func(*nats.Msg) {
		down <- struct{}{}
	}))(t)
	require.NoError(t, leader.Flush())
	appended := make(chan error, 1)
	go func() {
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}})
		appended <- err
	}()
	select {
	case <-down:
	case err := <-appended:
		require.Fail(t, "it was not asked to step down", err)
	}
	require.NoError(t, passedOver.Unsubscribe())
	hear()
	require.NoError(t, <-appended)
	require.Len(t, logtest.IDs(t, log, "s"), 2)
}

// A server whose disk hangs does not tell whether it takes writes: nobody waits for that for longer than for
// the write.
func TestAHangingDiskIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	well := make(chan struct{})
	defer close(well)
	log := openOn(t, nc, jetlog.Config{Deadline: time.Second, Writable: func() error {
		<-well
		return errors.New("too late")
	}})
	require.NoError(t, natstest.JetStream(t, nc).DeleteStream(t.Context(), "TURNS-0"))
	_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r1")}})
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.NotErrorIs(t, err, jetlog.ErrNoWrites, "nobody knows")
}

// If a node of a cluster has no room, another node may have some. So the append is tried until the deadline.
func TestWithoutRoomAnywhereTheReasonIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	must.Fail(jetlog.Retry(ctx, func() (jetlog.Ack, error) {
		if tries++; tries > 1 {
			cancel()
			return jetlog.Ack{}, context.Canceled
		}
		return jetlog.Ack{}, &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}
	}))(t, jetlog.ErrNoWrites)
	require.Equal(t, 2, tries)
}

// An append may begin another session beside what it appends to the first. It is there whole, or not at all, also when
// several such appends begin the same session at once.
func TestAnAppendBeginsAnotherSession(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	begins := func(session, other string) error {
		_, err := log.Append(t.Context(), jetlog.Append{BeginsOthers: true,
			Facts: []events.Fact{logtest.Fact(session, "r"), logtest.Fact(other, session), link(other)}})
		return err
	}
	require.NoError(t, begins("a", "child"))
	require.ErrorIs(t, begins("b", "child"), jetlog.ErrConflict)
	require.Empty(t, logtest.IDs(t, log, "b"))
	const many = 20
	for round := range 10 {
		child := fmt.Sprint("child ", round)
		var all sync.WaitGroup
		var won atomic.Int32
		for i := range many {
			all.Go(func() {
				session := fmt.Sprint(round, " s", i)
				if begins(session, child) == nil {
					won.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, won.Load())
		require.Len(t, logtest.IDs(t, log, child), 2)
		parents := 0
		for i := range many {
			parents += len(logtest.IDs(t, log, fmt.Sprint(round, " s", i)))
		}
		require.Equal(t, 1, parents)
	}
}

func TestAppendedEventsAreReadBack(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := logtest.Add(t, log, "s", "r1", "one")
	require.NoError(t, log.Durable(t.Context(), at))
	require.Equal(t, "0:1", at.String())
	require.Equal(t, "0:3", logtest.Append(t, log, link("s"), turntest.Started("s", "r2", "two")).Position.String())
	got := logtest.Read(t, log, "s")
	require.Len(t, got, 3)
	require.Equal(t, events.TypeSessionLinked, got[1].Type)
	require.Equal(t, "two", got[2].Fact.(*events.TurnStarted).QuestionNeutral)
	require.EqualValues(t, 3, logtest.Head(t, log, 0))
	require.Empty(t, logtest.Read(t, log, "other"))
}

// Sessions without events are found by one question a partition, unless the partition has events of one of those asked.
func TestUnseen(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	var of [2][]string
	for i := range 40 {
		id := fmt.Sprint("s", i)
		of[log.Partition(id)] = append(of[log.Partition(id)], id)
	}
	require.ElementsMatch(t, slices.Concat(of[:]...), log.Unseen(t.Context(), slices.Concat(of[:]...)))
	logtest.Add(t, log, of[0][3], "r1", "x")
	logtest.Add(t, log, of[0][4], "r1", "x")
	require.Equal(t, of[1], log.Unseen(t.Context(), slices.Concat(of[:]...)))
	require.Equal(t, of[0][5:], log.Unseen(t.Context(), of[0][5:]))
	require.Empty(t, log.Unseen(t.Context(), of[0][4:5]))
}

// However many steps an error has passed, it says once that the log is unavailable.
func TestTheLogIsSaidToBeUnavailableOnce(t *testing.T) {
	inner := jetlog.Unavailable("last of a subject", errors.New("no responders"))
	require.EqualError(t, inner, "last of a subject: the log is unavailable: no responders")
	err := jetlog.Unavailable("read session", inner)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.EqualError(t, err, "read session: last of a subject: the log is unavailable: no responders")
	require.EqualError(t, jetlog.Unavailable("", err), err.Error())
}
