package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

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
		require.Less(t, time.Since(began), 30*time.Second)
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
