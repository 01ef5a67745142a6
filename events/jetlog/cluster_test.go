package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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
	jetwire "github.com/turnledger/turnledger/events/jetlog/internal/wire"
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
	const writers = 2
	reads, stale := int64(600), int64(15)
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		reads, stale = 2000, 50
	}
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
		for _, m := range must.Get(tail.Next(ctx))(t) {
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

// A follower that a leader has never heard has no time, which reads as just now.
func TestAFollowerThatWasNeverHeardIsNoMajority(t *testing.T) {
	t.Parallel()
	follower := func(active time.Duration) *jetstream.PeerInfo { return &jetstream.PeerInfo{Active: active} }
	led := func(followers ...*jetstream.PeerInfo) *jetstream.ClusterInfo {
		return &jetstream.ClusterInfo{Leader: "n0", Replicas: followers}
	}
	require.True(t, jetlog.HeardMajority(led(follower(time.Millisecond), follower(time.Hour)), 3))
	require.False(t, jetlog.HeardMajority(led(follower(0), follower(time.Hour)), 3))
	require.False(t, jetlog.HeardMajority(led(follower(0), follower(0)), 3))
	require.False(t, jetlog.HeardMajority(led(&jetstream.PeerInfo{Active: 1, Offline: true}, follower(time.Hour)), 3))
}

// TestAQuestionThatFoundNobodyIsAskedAgain: who answers comes after the first question.
func TestAQuestionThatFoundNobodyIsAskedAgain(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	asked := 0
	sub := must.Get(nc.Subscribe("$JS.API.TEST", func(m *nats.Msg) {
		if asked++; asked > 1 {
			_ = m.Respond([]byte(`{"config":{}}`))
		}
	}))(t)
	var out struct{ Config any }
	require.NoError(t, must.Get(jetwire.New(nc))(t).Ask(deadline(t, hang.Limit), "TEST", nil, &out))
	require.NotNil(t, out.Config)
	require.NoError(t, sub.Drain())
}

// A leader that was elected a moment ago has not heard its followers yet, and one that is
// cut off never does.
func TestALeaderWithoutAMajorityIsAskedAgain(t *testing.T) {
	t.Parallel()
	nc := connectTo(t, plainServer(t, server.Options{})) // without JetStream, which would answer, too
	asked := 0
	sub, err := nc.Subscribe("$JS.API.STREAM.INFO.YOUNG", func(m *nats.Msg) {
		asked++
		_ = m.Respond(fmt.Appendf(nil, `{"config":{"num_replicas":3},"state":{"last_seq":7},"cluster":{"name":"c","leader":"a","replicas":[{"name":"b","active":%d},{"name":"c"}]}}`, asked-1))
	})
	require.NoError(t, err)
	require.EqualValues(t, 7, must.Get(jetlog.Head(t.Context(), nc, "YOUNG"))(t))
	require.NoError(t, sub.Unsubscribe())
	_, err = nc.Subscribe("$JS.API.STREAM.INFO.CUT", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"config":{"num_replicas":3},"state":{"last_seq":7},"cluster":{"name":"c","leader":"a","replicas":[{"name":"b"},{"name":"c"}]}}`))
	})
	require.NoError(t, err)
	_, err = jetlog.Head(t.Context(), nc, "CUT")
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.ErrorContains(t, err, "no majority")
}

// TestALeaderThatKnowsLessProvesNothing: a leader that was elected a moment ago may not have applied what was
// acknowledged. Its "not found" counts once its head has come to what was shown.
func TestALeaderThatKnowsLessProvesNothing(t *testing.T) {
	t.Parallel()
	nc := connectTo(t, plainServer(t, server.Options{}))
	answer := func(subject string, with func() []byte) {
		must.Get(nc.Subscribe("$JS.API."+subject, func(m *nats.Msg) { _ = m.Respond(with()) }))(t)
	}
	info := func(last int) []byte {
		return fmt.Appendf(nil, `{"config":{"num_replicas":3},"state":{"first_seq":1,"last_seq":%d,"messages":%[1]d},`+
			`"cluster":{"name":"c","leader":"a","replicas":[{"name":"b","active":1},{"name":"c"}]}}`, last)
	}
	none := func() []byte {
		return []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)
	}
	asked := 0
	answer("STREAM.MSG.GET.GROWS", none)
	answer("STREAM.INFO.GROWS", func() []byte { asked++; return info(asked) })
	require.True(t, must.Get(jetlog.Missing(t.Context(), nc, "GROWS", 5, 9))(t))
	require.Equal(t, 5, asked)
	answer("STREAM.MSG.GET.STAYS", none)
	answer("STREAM.INFO.STAYS", func() []byte { return info(3) })
	_, err := jetlog.Missing(t.Context(), nc, "STAYS", 5, 5)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.ErrorContains(t, err, "knows less than is known")
}

// TestOneHeadIsEnough: whose leader is out of reach is silent for long, and is not waited for
// where another has told; where none tells it ends in time.
func TestOneHeadIsEnough(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	silent := func(context.Context) (uint64, error) { <-over; return 0, jetlog.ErrUnavailable }
	tells := func(context.Context) (uint64, error) { return 7, nil }
	refuses := func(context.Context) (uint64, error) { return 0, jetlog.ErrUnavailable }
	require.True(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Hour), silent, refuses, tells))
	require.False(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Hour), refuses, refuses))
	require.False(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Second), silent, refuses))
}

// TestAServerThatIsCutOffIsLeft: its clients are not told, and go on to another.
func TestAServerThatIsCutOffIsLeft(t *testing.T) {
	t.Parallel()
	c := natstest.StartFragileCluster(t)
	nc := c.Connect(t)
	log := c.LogOn(t, nc, 1)
	at := slices.IndexFunc(c.URLs(), func(url string) bool { return url == nc.ConnectedUrl() })
	stop := natstest.Run(t, log.Run)
	c.Isolate(t, at)
	hang.Until(t, func() bool {
		_, err := log.Head(t.Context(), 0)
		return err == nil && nc.ConnectedUrl() != c.URLs()[at]
	})
	stop()
}

// A restored stream is the same one on all nodes of a cluster: by when it
// came to be every process tells whether the log is still its own, whoever leads.
func TestARestoredStreamIsTheSameOnAllNodes(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 1)
	const events = 40
	for i := range events {
		logtest.Add(t, from, fmt.Sprint("s", i%7), fmt.Sprint(i), "text")
	}
	cluster := natstest.StartCluster(t)
	restore(t, cluster.Log(t, 1), copyOf(t, from))
	log, nc := cluster.Log(t, 1), cluster.Connect(t)
	js, restored := natstest.JetStream(t, nc), log.Created(0)
	led, wrong := map[string]bool{}, error(nil)
	hang.Until(t, func() bool {
		s, err := js.Stream(t.Context(), "TURNS-0")
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		info := s.CachedInfo()
		led[info.Cluster.Leader] = true
		switch head, err := log.Head(t.Context(), 0); {
		case errors.Is(err, jetlog.ErrStream) || err == nil && head.Seq != events:
			wrong = fmt.Errorf("led by %s, it is at %s: %w", info.Cluster.Leader, head, err)
			return true
		case err != nil:
			return false // led by nobody at the moment
		}
		for _, r := range info.Cluster.Replicas {
			if !led[r.Name] {
				ask := fmt.Appendf(nil, `{"placement": {"preferred": %q}}`, r.Name)
				_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.TURNS-0", ask, 2*time.Second) // looked at again
				return false
			}
		}
		return true
	})
	require.NoError(t, wrong)
	require.Len(t, led, 3)
	require.Equal(t, restored, cluster.Log(t, 1).Created(0), "to those who start now, too")
	require.False(t, restored.Equal(from.Created(0)), "every projection notices that it is another stream")
}
