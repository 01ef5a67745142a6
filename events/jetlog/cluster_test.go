package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestThreeReplicas is one test, since a cluster takes a second to come up.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	t.Run("outcomes", func(t *testing.T) { testOutcomesOnReplicas(t, c.Log(t, 1)) })
	t.Run("a session is never stale", func(t *testing.T) { testSessionIsNeverStale(t, c) })
	t.Run("an erased identity is never missed", func(t *testing.T) { testErasedIdentityIsNeverMissed(t, c) })
	t.Run("partitions and replicas are fixed", func(t *testing.T) {
		refused(t, c.Connect(t), jetlog.Config{Partitions: 8, Replicas: 3}, "set TURNLEDGER_PARTITIONS=1")
		refused(t, c.Connect(t), jetlog.Config{Replicas: 1}, "has 3 replicas", "set TURNLEDGER_REPLICAS=3")
	})
	t.Run("a leader stops under load", func(t *testing.T) { testLeaderStops(t, c) })
}

// On three replicas the event id is looked at before the expectation.
func testOutcomesOnReplicas(t *testing.T, log *jetlog.Log) {
	outcomes(t, log, true)
	ctx := t.Context()
	// Of many who expect the same at once one wins, and the same id at once is one event.
	var won, once atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, err := log.Append(ctx, expect(0, logtest.Fact("race", fmt.Sprint(i))))
			var lost *jetlog.Conflict
			switch {
			case err == nil:
				won.Add(1)
			case !errors.As(err, &lost):
				t.Error(err)
			}
			ack, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{logtest.Fact("same", "r")}})
			if assert.NoError(t, err) && !ack.Duplicate {
				once.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, won.Load())
	require.EqualValues(t, 1, once.Load())
	require.Len(t, logtest.IDs(t, log, "race"), 1)
	require.Len(t, logtest.IDs(t, log, "same"), 1)
}

// testSessionIsNeverStale reads after each write through each server, and so from
// whichever replica, until direct get alone has been old often enough, at the same
// place, to know that it could have been.
func testSessionIsNeverStale(t *testing.T, c *natstest.Cluster) {
	const writers, reads, stale = 2, 2000, 50
	var logs []*jetlog.Log
	var conns []*nats.Conn
	for i := range c.Servers {
		conns = append(conns, c.ConnectTo(t, i))
		logs = append(logs, c.LogOn(t, conns[i], 1))
	}
	var done, old atomic.Int64
	end := time.Now().Add(30 * time.Second)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			session := fmt.Sprint("fresh", w)
			for i := 0; (done.Load() < reads || old.Load() < stale) && time.Now().Before(end); i++ {
				facts := []events.Fact{logtest.Fact(session, fmt.Sprint(i))}
				ack, err := logs[w].Append(t.Context(), jetlog.Append{Facts: facts})
				if err == nil && i%2 == 0 {
					old.Add(staleDirectGets(conns, session, ack.Position.Seq))
				}
				for k := range logs {
					if err == nil {
						err = sees(t, logs[(i+k)%3], session, ack.Position)
					}
					done.Add(2)
				}
				if !assert.NoError(t, err, "after %d writes", i) {
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d reads; direct get alone was old %d times", done.Load(), old.Load())
	require.NotZero(t, old.Load(), "no replica was ever behind: the test proves nothing")
}

// staleDirectGets asks through each connection as nats.go would.
func staleDirectGets(conns []*nats.Conn, session string, acked uint64) (old int64) {
	for _, nc := range conns {
		m, err := nc.Request("$JS.API.DIRECT.GET."+events.StreamName(0)+"."+events.SessionSubject(session), nil,
			time.Second)
		if err != nil {
			continue
		}
		if seq, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); seq < acked {
			old++
		}
	}
	return old
}

// sees holds that a session read now ends with a position, whatever bound the read
// has, and that the head is not before it.
func sees(t *testing.T, log *jetlog.Log, session string, at events.Position) error {
	ends := func(upTo uint64) error {
		last := uint64(0)
		for e, err := range log.Session(t.Context(), session, at.Seq-1, upTo) {
			if err != nil {
				return err
			}
			last = e.Position.Seq
		}
		if last != at.Seq {
			return fmt.Errorf("the session ends with %d, not %s", last, at)
		}
		return nil
	}
	if err := ends(math.MaxUint64); err != nil {
		return err
	}
	head, err := log.Head(t.Context(), at.Partition)
	if err != nil {
		return err
	}
	if head.Seq < at.Seq {
		return fmt.Errorf("the head is %s, before %s", head, at)
	}
	return ends(head.Seq)
}

// load writes sessions until it is stopped, asks again what is unknown, and holds the
// log to it.
type load struct {
	log   *jetlog.Log
	acked atomic.Int64
	stop  context.CancelFunc
	all   sync.WaitGroup
	wrote []int
}

func startLoad(t *testing.T, log *jetlog.Log, writers int) *load {
	l := &load{log: log, wrote: make([]int, writers)}
	var on context.Context
	on, l.stop = context.WithCancel(t.Context())
	for w := range writers {
		l.all.Go(func() {
			for on.Err() == nil {
				fact := logtest.Fact(fmt.Sprint("load", w), fmt.Sprint(l.wrote[w]))
				if !assert.NoError(t, logtest.Persist(t.Context(), log, fact)) {
					return
				}
				l.wrote[w]++
				l.acked.Add(1)
			}
		})
	}
	return l
}

// goesOn waits for more acknowledged events.
func (l *load) goesOn(t *testing.T, more int64) {
	t.Helper()
	from := l.acked.Load()
	hang.Until(t, func() bool { return l.acked.Load() >= from+more }, "nothing is acknowledged any more")
}

// end stops the writers, and holds that a tail from the beginning shows every event
// that was acknowledged once, each session in its order.
func (l *load) end(t *testing.T, tail *jetlog.Tail) {
	t.Helper()
	l.stop()
	l.all.Wait()
	want, total := map[string][]string{}, 0
	for w, n := range l.wrote {
		session := fmt.Sprint("load", w)
		for i := range n {
			want[session] = append(want[session], logtest.Fact(session, fmt.Sprint(i)).EventID())
		}
		require.Equal(t, want[session], logtest.IDs(t, l.log, session))
		total += n
	}
	got, ctx := map[string][]string{}, deadline(t, hang.Limit)
	for seen, last := 0, uint64(0); seen < total; {
		batch := must.Get(tail.Next(ctx))(t)
		for _, m := range batch {
			require.Greater(t, m.Position.Seq, last)
			last = m.Position.Seq
			e := m.Recorded()
			if _, ok := want[e.SessionID]; ok {
				got[e.SessionID] = append(got[e.SessionID], e.ID)
				seen++
			}
		}
	}
	require.Equal(t, want, got)
	t.Logf("%d events acknowledged", total)
}

// testLeaderStops stops leaders in an orderly way under load: leadership is handed on.
func testLeaderStops(t *testing.T, c *natstest.Cluster) {
	log := c.Log(t, 1)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	l := startLoad(t, log, 8)
	l.goesOn(t, 100)
	leader := c.Leader(t, events.StreamName(0), 0, 1, 2)
	c.Servers[leader].Shutdown()
	l.goesOn(t, 100)
	l.end(t, tail)
}

// TestLeaderThatIsCutOff is cut off from its followers under load, with clients of its
// own, and killed later. It goes on thinking that it leads for ten seconds, the
// others elect another after four at the earliest.
func TestLeaderThatIsCutOff(t *testing.T) {
	t.Parallel()
	c := natstest.StartFragileCluster(t)
	log := c.Log(t, 1)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	stream := events.StreamName(0)
	old := c.Leader(t, stream, 0, 1, 2)
	rest := []int{(old + 1) % 3, (old + 2) % 3}
	cutOff := c.LogOn(t, c.ConnectTo(t, old), 1)
	l := startLoad(t, c.LogOn(t, c.ConnectTo(t, rest[0]), 1), 4)
	l.goesOn(t, 50)
	c.Isolate(t, old)

	// What it answers must hold what was acknowledged before it was asked.
	r := &heads{log: cutOff, load: l}
	ctx, stop := context.WithCancel(t.Context())
	r.all.Go(func() { r.ask(ctx, t) })
	c.Leader(t, stream, rest...)
	l.goesOn(t, 50)
	stillLeads := c.Servers[old].JetStreamIsStreamLeader("$G", stream)
	must.Fail(cutOff.Head(deadline(t, time.Second), 0))(t, jetlog.ErrUnavailable)
	for _, err := range cutOff.Session(deadline(t, time.Second), "load0", 0, math.MaxUint64) {
		require.ErrorIs(t, err, jetlog.ErrUnavailable)
	}
	stop()
	r.all.Wait()
	t.Logf("deposed, and still thinks that it leads: %t; refused %d reads", stillLeads, r.refused.Load())
	require.Zero(t, r.old.Load(), "stale reads")

	c.Kill(t, old)
	l.goesOn(t, 50)
	l.end(t, tail)
}

// heads reads heads and holds them against a load.
type heads struct {
	log                *jetlog.Log
	load               *load
	all                sync.WaitGroup
	read, refused, old atomic.Int64
}

func (r *heads) ask(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		before := r.load.acked.Load()
		head, err := r.log.Head(ctx, 0)
		switch {
		case errors.Is(err, jetlog.ErrUnavailable):
			r.refused.Add(1)
		case !assert.NoError(t, err):
			return
		default:
			r.read.Add(1)
			if int64(head.Seq) < before {
				r.old.Add(1)
			}
		}
	}
}

// One node's process erases identities, the others' ask right after, be it that they
// follow the log or not.
func testErasedIdentityIsNeverMissed(t *testing.T, c *natstest.Cluster) {
	erasing := c.Log(t, 1)
	var asking []*jetlog.Log
	for i := range c.Servers {
		asking = append(asking, c.LogOn(t, c.ConnectTo(t, i), 1))
	}
	for i := range 60 {
		if i == 30 {
			for _, log := range asking {
				openTail(t, log, 0, jetlog.TailOptions{HeadersOnly: true})
			}
		}
		identity := fmt.Sprint("identity ", i)
		ack := logtest.Append(t, erasing, &events.IdentityErased{IdentityID: identity, ReceiptID: "receipt"})
		for _, log := range asking {
			head := must.Get(log.Head(t.Context(), 0))(t)
			gone, at := must.Two(log.IdentityErasure(t.Context(), identity, head))(t)
			require.NotNil(t, gone, identity)
			require.Equal(t, ack.Position, at)
			living, _ := must.Two(log.IdentityErasure(t.Context(), "living "+identity, head))(t)
			require.Nil(t, living)
		}
	}
}
