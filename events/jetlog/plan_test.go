package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
)

// openSingle opens a log of one replica on a connection to a cluster.
func openSingle(t *testing.T, nc *nats.Conn) *jetlog.Log {
	t.Helper()
	return openOn(t, nc, jetlog.Config{Outside: true})
}

// changes returns what a plan says of a stream.
func changes(plan []operate.Stream, name string) (out []string) {
	for _, s := range plan {
		for _, c := range s.Changes {
			if s.Name == name {
				out = append(out, fmt.Sprintf("%s %s to %s", c.What, c.Have, c.Want))
			}
		}
	}
	return out
}

// A log goes from one replica to three and back while one process writes to it, and
// processes that were told of one replica read after each of their writes: what was
// acknowledged is there once and in order, and no read is old.
func TestReplicasChangeUnderLoad(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	log := openSingle(t, c.Connect(t))
	must.Get(log.Notes(t.Context()))(t)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	l := startLoad(t, log, 4)
	l.goesOn(t, 100)

	var conns []*nats.Conn
	var logs []*jetlog.Log
	for i := range c.Servers {
		conns = append(conns, c.ConnectTo(t, i))
		logs = append(logs, openSingle(t, conns[i]))
	}
	on, stop := context.WithCancel(t.Context())
	var reads, old, unknown atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; on.Err() == nil; i++ {
			facts := []events.Fact{logtest.Fact("fresh", fmt.Sprint(i))}
			ack, err := logs[i%3].Append(t.Context(), jetlog.Append{Facts: facts})
			if err == nil && reads.Load() > 0 {
				old.Add(staleDirectGets(conns, "fresh", ack.Position.Seq))
			}
			for k := range logs {
				if err == nil {
					err = sees(t, logs[k], "fresh", ack.Position)
					reads.Add(1)
				}
			}
			if errors.Is(err, jetlog.ErrUnavailable) {
				unknown.Add(1)
			} else if !assert.NoError(t, err, "after %d writes", i) {
				return
			}
		}
	})

	want := operate.Want{Replicas: 3}
	plan := must.Get(operate.On(log).Plan(t.Context(), want))(t)
	require.Len(t, plan, 2)
	for _, name := range []string{"TURNS-0", "KV_TURNLEDGER"} {
		require.Equal(t, []string{"replicas 1 to 3"}, changes(plan, name))
	}
	plan = must.Get(operate.On(log).Apply(t.Context(), want))(t)
	require.Empty(t, changes(plan, "TURNS-0"))
	require.Empty(t, changes(plan, "KV_TURNLEDGER"))
	filled := func() bool {
		plan, err := operate.On(log).Plan(t.Context(), want)
		if err != nil {
			return false
		}
		for _, s := range plan {
			for _, f := range s.Followers {
				if !f.Current || f.Behind > 0 {
					return false
				}
			}
		}
		return len(plan[0].Followers) == 2
	}
	hang.Until(t, filled)
	hang.Until(t, func() bool { return old.Load() > 20 }, "no replica was ever behind: the test proves nothing")
	l.goesOn(t, 100)

	must.Get(operate.On(log).Apply(t.Context(), operate.Want{Replicas: 1}))(t)
	l.goesOn(t, 100)
	stop()
	all.Wait()
	l.end(t, tail)
	t.Logf("%d reads, %d without an answer; direct get alone was old %d times", reads.Load(), unknown.Load(),
		old.Load())
	refused(t, c.Connect(t), jetlog.Config{Replicas: 3}, "turnledger streams apply --replicas 3")
}

func TestPlansThatAreRefused(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	plan := must.Get(operate.On(log).Apply(t.Context(), operate.Want{Replicas: 3}))(t)
	require.Contains(t, plan[0].Changes[0].Refused, "not in a cluster")
	plan = must.Get(operate.On(log).Plan(t.Context(), operate.Want{Partitions: 8}))(t)
	require.Equal(t, []string{"partitions 2 to 8"}, changes(plan, "TURNS-1"))
	require.Contains(t, plan[0].Changes[0].Refused, "made with 2 partitions, which is fixed for ever")
	_, err := operate.On(log).Apply(t.Context(), operate.Want{Partitions: 8})
	require.ErrorIs(t, err, jetlog.ErrRefused)
	require.ErrorContains(t, err, "made with 2 partitions")
	plan = must.Get(operate.On(log).Apply(t.Context(), operate.Want{Partitions: 2}))(t)
	require.Empty(t, changes(plan, "TURNS-0"))
}

// What somebody has changed in a stream that is in use is taken back, and what NATS
// does not take back is told.
func TestApplyTakesChangesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	log, cfg := openOn(t, nc, jetlog.Config{}), natstest.Stream(t, nc, "TURNS-0").CachedInfo().Config
	cfg.MaxMsgs, cfg.MaxMsgSize, cfg.Duplicates, cfg.AllowRollup, cfg.AllowDirect = 10, 1000, time.Second, true, false
	cfg.Subjects, cfg.AllowMsgTTL, cfg.Compression = cfg.Subjects[:1], true, jetstream.S2Compression
	must.Get(natstest.JetStream(t, nc).UpdateStream(t.Context(), cfg))(t)
	plan := must.Get(operate.On(log).Plan(t.Context(), operate.Want{}))(t)
	require.Len(t, plan[0].Changes, 8)
	plan = must.Get(operate.On(log).Apply(t.Context(), operate.Want{}))(t)
	require.Len(t, plan[0].Changes, 1)
	require.Contains(t, plan[0].Changes[0].Have, "TTL")
	require.Contains(t, plan[0].Changes[0].Refused, "does not take it back")
}

// Replicas are added and taken away under many writers, time after time. The server may take what is in its queue in
// such a moment for being in process as long as it keeps ids, which is two minutes: no append waits for one (Persist).
// What is acknowledged is there whole. Batches pause while replicas are taken away: nothing lets that server forget
// them (docs/operations.md). The test has no others beside it, since it is about how long an append takes.
//
//conformance:l4
func TestNoAppendHangsWhileReplicasChange(t *testing.T) {
	c := natstest.StartCluster(t)
	log := openSingle(t, c.Connect(t))
	const writers = 48
	rounds := 1
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 50
	}
	var stop, single atomic.Bool
	var all sync.WaitGroup
	var wrote [writers]int
	var acked [writers]atomic.Int64
	for w := range writers {
		all.Go(func() {
			for !stop.Load() {
				var facts []events.Fact
				for range 1 + w%3*4 {
					if single.Load() && len(facts) > 0 {
						break
					}
					facts = append(facts, logtest.Fact(fmt.Sprint("s", w), fmt.Sprint(wrote[w]+len(facts))))
				}
				n := len(facts)
				for len(facts) > 0 {
					err := logtest.Persist(t.Context(), log, facts...)
					if err == nil {
						break
					}
					if !assert.ErrorIs(t, err, jetlog.ErrBatchDuplicate, "an append of %d hangs", n) {
						return
					}
					there := logtest.IDs(t, log, fmt.Sprint("s", w)) // a part of it, or all
					facts = slices.DeleteFunc(facts, func(f events.Fact) bool {
						return slices.Contains(there, fmt.Sprint(f.(*events.TurnStarted).TurnID, ".started"))
					})
				}
				wrote[w] += n
				acked[w].Add(1)
			}
		})
	}
	allGoOn := func() {
		for w := range writers {
			from := acked[w].Load()
			hang.Until(t, func() bool { return acked[w].Load() > from })
		}
	}
	for range rounds {
		for _, replicas := range []int{3, 1} {
			single.Store(replicas == 1)
			allGoOn()
			must.Get(operate.On(log).Apply(t.Context(), operate.Want{Replicas: replicas}))(t)
			allGoOn()
		}
	}
	stop.Store(true)
	all.Wait()
	for w, n := range wrote {
		require.Len(t, logtest.IDs(t, log, fmt.Sprint("s", w)), n, "writer %d", w)
	}
}

// A batch that a cluster has acknowledged, but whose first messages are missing, is not acknowledged to its callers.
//
//conformance:l5
func TestABatchThatLacksItsBeginIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	log := natstest.StartCluster(t).Log(t, 1)
	// An append waits until the node that is asked knows of the new stream; the parts of one, called below, do not.
	must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("z", "r")}}))(t)
	var appends [][]*nats.Msg
	for _, session := range []string{"a", "b", "c"} {
		msgs := must.Get(log.Messages(jetlog.Append{Facts: []events.Fact{
			logtest.Fact(session, "r1"), logtest.Fact(session, "r2")}}))(t)
		appends = append(appends, msgs)
	}
	last := must.Get(log.Batch(t.Context(), appends[:2]...))(t)
	first := appends[0][0]
	require.NoError(t, log.Whole(t.Context(), first, last-3))
	require.Error(t, log.Whole(t.Context(), first, last-2), "its second message stands where the first should")
	require.Error(t, log.Whole(t.Context(), first, last+1), "nothing stands there")
	again := appends[2]
	must.Get(log.Batch(t.Context(), again))(t)
	require.Error(t, log.Whole(t.Context(), again[0], last-3), "another batch stands there")
}
