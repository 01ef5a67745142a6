package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/runner"
)

// sink is a projection that keeps what it applied, with a transaction that may fail
// before or after its commit.
type sink struct {
	mu      sync.Mutex
	at      map[int]projections.Checkpoint
	applied []string
	fail    func(projections.Batch) (before, after error)
}

func newSink() *sink {
	return &sink{at: map[int]projections.Checkpoint{}, fail: func(projections.Batch) (error, error) { return nil, nil }}
}

func (s *sink) Name() string { return "sink" }

func (s *sink) Claim(_ context.Context, k int) (projections.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cp := s.at[k]
	cp.Partition = k
	cp.Epoch++
	s.at[k] = cp
	return cp, nil
}

func (s *sink) Applied(_ context.Context, k int) (events.Position, error) {
	return events.Position{Partition: k, Seq: s.reached(k)}, nil
}

func (s *sink) Apply(_ context.Context, b projections.Batch) error {
	return s.commit(b, func() {
		for _, e := range b.Events {
			s.applied = append(s.applied, e.Position.String()+" "+e.Change.Kind.String())
		}
	})
}

func (s *sink) commit(b projections.Batch, rows func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.fail(b)
	if before != nil {
		return before
	}
	have := s.at[b.From.Partition]
	if have.Seq != b.From.Seq || have.Epoch != b.From.Epoch {
		return projections.ErrFenced
	}
	s.at[b.To.Partition] = b.To
	rows()
	return after
}

func (s *sink) reached(k int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[k].Seq
}

func start(t testing.TB, log *jetlog.Log, p projections.Projection) (stop func()) {
	t.Helper()
	return startWith(t, log, p, 5*time.Millisecond)
}

// startWith runs a runner that pauses so long after it broke off.
func startWith(t testing.TB, log *jetlog.Log, p projections.Projection, pause time.Duration) (stop func()) {
	t.Helper()
	sometimes := func() bool { return rand.N(2) == 0 }
	return natstest.Run(t, runner.New(log, p, runner.Config{
		Feeding: runner.Feeding{MaxBatch: 7, Lag: time.Second, Busy: sometimes}, Pause: pause,
	}).Run)
}

func fill(t testing.TB, log *jetlog.Log, sessions, turns int) {
	t.Helper()
	var facts []events.Fact
	for i := range turns {
		for s := range sessions {
			facts = append(facts, turntest.Turn(fmt.Sprint("s", s), fmt.Sprint("r", i), "q", "a")...)
		}
	}
	natstest.Append(t, log, facts...)
}

// Batches that fail before and after their commit, and a runner that is stopped and
// started at random, apply every event once and in order.
func TestEveryEventIsAppliedOnceInOrder(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	log := natstest.Log(t, 1)
	fill(t, log, 5, 20)
	s := newSink()
	failed := errors.New("the store is away")
	s.fail = func(projections.Batch) (error, error) {
		switch rng.IntN(8) {
		case 0:
			return failed, nil
		case 1:
			return nil, failed
		default:
			return nil, nil
		}
	}
	for s.reached(0) < 200 {
		before := s.reached(0)
		stop := start(t, log, s)
		hang.Until(t, func() bool { return s.reached(0) > before }, "seed %d", seed)
		stop()
	}
	var want []string
	for i := range 200 {
		kind := session.Started
		if i%2 == 1 {
			kind = session.Answered
		}
		want = append(want, fmt.Sprintf("0:%d %s", i+1, kind))
	}
	require.Equal(t, want, s.applied, "seed %d", seed)
}

func TestTwoRunnersNeverApplyTwice(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := newSink()
	// Long enough for the other runner to claim, open its tail and apply: two that pause for less take turns for long.
	const pause = 40 * time.Millisecond
	a, b := startWith(t, log, s, pause), startWith(t, log, s, pause)
	fill(t, log, 3, 30)
	hang.Until(t, func() bool { return s.reached(0) == 180 })
	a()
	b()
	require.Len(t, s.applied, 180)
	for i, e := range s.applied {
		require.Contains(t, e, fmt.Sprintf("0:%d ", i+1))
	}
}

// Who keeps a view from what was erased while it had read it fences its runner: a batch
// that failed before is not applied as it was read.
func TestABatchThatFailedIsReadAnewAfterAFence(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 2)
	s := newSink()
	tries := 0
	s.fail = func(projections.Batch) (error, error) {
		if tries++; tries > 1 {
			return nil, nil
		}
		_, err := overwrite.On(log).Erase(t.Context(), events.Position{Seq: 3})
		assert.NoError(t, err)
		cp := s.at[0]
		cp.Epoch++
		s.at[0] = cp
		return errors.New("the store is away"), nil
	}
	stop := start(t, log, s)
	hang.Until(t, func() bool { return s.reached(0) == 4 })
	stop()
	require.Len(t, s.applied, 3)
}

func TestAnotherStreamThanTheCheckpointsIsAnError(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	fill(t, log, 8, 3)
	for name, cp := range map[string]projections.Checkpoint{
		"made anew":     {Seq: 3, Created: time.Unix(1, 0), EventID: "x"},
		"other event":   {Seq: 3, Created: log.Created(0), EventID: "x"},
		"beyond it all": {Seq: 300, Created: log.Created(0)},
	} {
		s := newSink()
		s.at[0] = cp
		r := runner.New(log, s, runner.Config{})
		err := r.Run(t.Context())
		require.Error(t, err, name)
		require.Contains(t, err.Error(), "rebuild", name)
		require.Zero(t, s.reached(0)-cp.Seq, name)
		got := r.Status(t.Context(), time.Now())
		require.Equal(t, []string{"failed", "stopped"}, []string{got[0].State, got[1].State}, name)
		for _, p := range got {
			require.True(t, p.LagUnknown, "a position in another log is not level with this one: %s", name)
			require.NotZero(t, p.Head.Seq, name)
			require.Contains(t, p.LastError, "rebuild", name)
		}
	}
}

func TestMain(m *testing.M) { leaks.VerifyTestMain(pg.Runner(m)) }

// panicky has a bug that shows once.
type panicky struct {
	*sink
	once sync.Once
}

func (p *panicky) Apply(ctx context.Context, b projections.Batch) error {
	p.once.Do(func() { panic("a bug in a projection") })
	return p.sink.Apply(ctx, b)
}

// A panic is like any other failure: what was judged for it is judged anew.
func TestPanicOfAProjectionLosesNothing(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 3)
	p, counted := &panicky{sink: newSink()}, prometheus.NewRegistry()
	natstest.Run(t, runner.New(log, p, runner.Config{Feeding: runner.Feeding{MaxBatch: 7}, Pause: 5 * time.Millisecond,
		Metrics: runner.NewMetrics(counted)}).Run)
	hang.Until(t, func() bool { return p.reached(0) == 6 })
	failures := must.Get(testutil.GatherAndCount(counted, "turnledger_projection_failures_total"))(t)
	require.Equal(t, 1, failures, "a panic is counted")
	require.Equal(t, []string{"0:1 started", "0:2 answered", "0:3 started", "0:4 answered", "0:5 started",
		"0:6 answered"}, p.applied)
}

// lossy is a store that can be emptied.
type lossy struct{ *sink }

func (l lossy) empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.applied = map[int]projections.Checkpoint{}, nil
}

// TestAStoreThatWasEmptiedIsFilledAgain without a next event: nobody writes any more.
func TestAStoreThatWasEmptiedIsFilledAgain(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	fill(t, log, 1, 3)
	store := lossy{newSink()}
	natstest.Run(t, runner.New(log, store, runner.Config{Pause: 5 * time.Millisecond, Beat: 5 * time.Millisecond}).Run)
	for range 3 {
		hang.Until(t, func() bool { return store.reached(0) == 6 })
		store.empty()
	}
	hang.Until(t, func() bool { return store.reached(0) == 6 })
}

// While others need the processors, events wait until a batch is full, until one takes a text away, until nobody needs
// the processors any more, or until they have waited long enough.
func TestEventsWaitWhileTheProcessorsAreTaken(t *testing.T) {
	t.Parallel()
	const full = 20
	log := natstest.Log(t, 1)
	n := 0
	link := func() events.Fact {
		n++
		return &events.SessionLinked{SessionID: fmt.Sprint("s", n), IdentityID: "i"}
	}
	add := func(f events.Fact) uint64 { return natstest.Append(t, log, f).Seq }
	s := newSink()
	var busy atomic.Bool
	busy.Store(true)
	natstest.Run(t, runner.New(log, s, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: full, Lag: time.Hour, Busy: busy.Load},
	}).Run)
	applied := func(seq uint64, why string) {
		t.Helper()
		hang.Until(t, func() bool { return s.reached(0) >= seq }, why)
	}
	waits := func(seq uint64, why string) {
		t.Helper()
		require.Never(t, func() bool { return s.reached(0) >= seq }, 300*time.Millisecond, 10*time.Millisecond, why)
	}
	waits(add(link()), "a first event")
	for range full - 2 {
		add(link())
	}
	waits(1, "a batch that is not full")
	applied(add(link()), "a full batch")

	waits(add(link()), "a first event")
	applied(add(&events.SessionErased{SessionID: "s1", ReceiptID: "r"}), "an erasure, and all that came before it")

	last := add(link())
	waits(last, "the erasure is over")
	busy.Store(false)
	applied(last, "nobody needs the processors")

	busy.Store(true)
	patient := newSink()
	natstest.Run(t, runner.New(log, patient, runner.Config{
		Rules: rules, Feeding: runner.Feeding{MaxBatch: 2 * full, Lag: 2 * time.Second, Busy: busy.Load},
	}).Run)
	hang.Until(t, func() bool { return patient.reached(0) >= last })
	began := time.Now()
	last = add(link())
	hang.Until(t, func() bool { return patient.reached(0) >= last })
	require.GreaterOrEqual(t, time.Since(began), time.Second, "it waits for its time")
}

// Goroutines that compute on all processors let others wait.
func TestProcessorsAreTaken(t *testing.T) {
	var p runner.Processors
	require.False(t, p.Taken(), "nothing is known yet")
	var done atomic.Bool
	for range 8 * runtime.GOMAXPROCS(0) {
		go func() {
			for !done.Load() {
				continue // it computes
			}
		}()
	}
	defer done.Store(true)
	hang.Until(t, p.Taken)
}

// counted counts the batches that reach a sink.
type counted struct {
	projections.Projection
	batches atomic.Int64
}

func (c *counted) Apply(ctx context.Context, b projections.Batch) error {
	c.batches.Add(1)
	return c.Projection.Apply(ctx, b)
}

// Events that come while a partition rests are one batch.
func TestEventsGatherWhileAPartitionRests(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := newSink()
	c := &counted{Projection: s}
	natstest.Run(t, runner.New(log, c, runner.Config{Rules: rules, Feeding: runner.Feeding{Rest: 2 * time.Second}}).Run)
	fill(t, log, 1, 1)
	hang.Until(t, func() bool { return s.reached(0) > 0 })
	before := c.batches.Load()
	for i := range 20 {
		pause.For(t.Context(), 3*time.Millisecond)
		natstest.Append(t, log, &events.SessionLinked{SessionID: fmt.Sprint("late", i), IdentityID: "i"})
	}
	hang.Until(t, func() bool { return s.reached(0) == 22 })
	require.Less(t, c.batches.Load()-before, int64(5), "20 events, one after the other")
}
