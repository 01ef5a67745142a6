package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = session.Rules{SessionTTL: 24 * time.Hour}

// kept is a view in a store that outlives the process, as far as a fleet can see. It holds no rows.
type kept struct {
	mu     sync.Mutex
	served projections.Served
	down   error
}

// newKept makes a view that has applied nothing.
func newKept() *kept {
	k := &kept{}
	k.set(nil)
	return k
}

func (*kept) Name() string { return "kept" }

func (k *kept) set(down error, at ...projections.Checkpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served, k.down = projections.Served{Store: "here", Generation: 1, At: at}, down
}

func (k *kept) Served(context.Context) (projections.Served, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.served, k.down
}

func (k *kept) Applied(ctx context.Context, partition int) (events.Position, error) {
	served, err := k.Served(ctx)
	return served.Of(partition).Position(), err
}

func (k *kept) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	served, err := k.Served(ctx)
	cp := served.Of(partition)
	cp.Epoch++
	return cp, err
}

func (k *kept) Apply(_ context.Context, b projections.Batch) error {
	k.set(nil, b.To)
	return nil
}

func (*kept) Restore(_ context.Context, s projections.Session) ([]events.Position, error) {
	return []events.Position{s.Letter}, nil
}

func (*kept) NewReference(context.Context, int) (projections.Reference, error) {
	return nil, errors.New("the test compares nothing")
}

func newFleet(log *jetlog.Log) *fleet.Fleet {
	return fleet.New(fleet.Config{Log: log, ViewNames: []string{"elsewhere"}, Config: runner.Config{
		Rules: rules, Logger: slog.New(slog.DiscardHandler), Pause: 10 * time.Millisecond,
	}})
}

func add(t *testing.T, f *fleet.Fleet, e fleet.Entry) *fleet.ManagedView {
	t.Helper()
	return must.Get(f.Add(t.Context(), e))(t)
}

func inMemory() fleet.Entry {
	v := memory.New(recent.Limits{}, rules, nil)
	return fleet.Entry{View: v, Rebuildable: v, Feeds: true, InMemory: true}
}

func question(t *testing.T, log *jetlog.Log) events.Position {
	t.Helper()
	return natstest.Append(t, log, turntest.Started("s", "r", "q"))
}

func TestAViewOfAnotherLogIsNotReadUntilItFollowsThisOne(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := &kept{}
	v.set(nil, projections.Checkpoint{Seq: at.Seq + 7, Created: log.Created(0)})
	f := newFleet(log)
	m := add(t, f, fleet.Entry{View: v, Reads: true, Store: "store", Reason: "it is out"})
	require.ErrorIs(t, m.Readable(), projections.ErrStream)
	checks := f.Checks()
	require.Len(t, checks, 1)
	require.Equal(t, "store", checks[0].Store)
	not, ok := errors.AsType[*events.NotReady](checks[0].Probe(t.Context()))
	require.True(t, ok)
	require.Equal(t, "not read: the view kept does not follow this log; turnledger projections rebuild kept",
		not.Reason)

	natstest.Run(t, f.Run)
	v.set(nil, projections.Checkpoint{Seq: at.Seq, Created: log.Created(0)})
	hang.Until(t, func() bool { return m.Readable() == nil })
	require.NoError(t, checks[0].Probe(t.Context()))
	v.set(errors.New("no answer"))
	not, ok = errors.AsType[*events.NotReady](checks[0].Probe(t.Context()))
	require.True(t, ok)
	require.Equal(t, "it is out", not.Reason)
}

func TestAViewIsAskedOnceItsStoreAnswers(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := &kept{}
	out := projections.Unavailable(errors.New("no answer"))
	var mu sync.Mutex
	f := newFleet(log)
	m := add(t, f, fleet.Entry{View: v, Feeds: true, Open: func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return out
	}})
	require.ErrorIs(t, m.Readable(), fleet.ErrUnopened)
	must.Fail(m.Applied(t.Context(), 0))(t, fleet.ErrUnopened)
	letters := f.DeadLetters()
	require.Len(t, letters, 1)
	must.Fail(letters[0].DeadLetters(t.Context()))(t, fleet.ErrUnopened)
	must.Fail(letters[0].RetryDeadLetter(t.Context(), at))(t, fleet.ErrUnopened)
	must.Fail(letters[0].DropDeadLetter(t.Context(), at, projections.Drop{}))(t, fleet.ErrUnopened)

	natstest.Run(t, f.Run)
	mu.Lock()
	out = nil
	mu.Unlock()
	hang.Until(t, func() bool {
		done, err := m.Applied(t.Context(), 0)
		return err == nil && done == at
	})
	require.NoError(t, m.Readable())
	require.Empty(t, must.Get(letters[0].DeadLetters(t.Context()))(t))

	_, err := f.Add(t.Context(), fleet.Entry{View: v, Feeds: true, Open: func(context.Context) error {
		return errors.New("a wrong password")
	}})
	require.EqualError(t, err, "a wrong password", "trying again does not help")
}

func TestDeadLettersAreThoseOfTheServedStore(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := &kept{}
	cp := projections.Checkpoint{
		Seq: at.Seq, Created: log.Created(0), Epoch: 1, Store: "here", Generation: 1,
	}
	v.set(nil, cp)
	f := newFleet(log)
	add(t, f, fleet.Entry{View: v, Reads: true})
	letters := f.DeadLetters()[0]
	require.Equal(t, "kept", letters.Name())
	claim := must.Get(f.Desk().ClaimLetters(t.Context(), "kept", cp))(t)
	e, _ := must.Two(log.At(t.Context(), at))(t)
	dead := projections.NewDeadLetter("kept", &projections.Judged{Recorded: e}, "a test", time.Now())
	require.NoError(t, claim.Keep(t.Context(), cp.Created, dead))

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(f)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP turnledger_projection_dead_letters Dead letters that there are, by projection and state.
		# TYPE turnledger_projection_dead_letters gauge
		turnledger_projection_dead_letters{projection="kept",state="dropped"} 0
		turnledger_projection_dead_letters{projection="kept",state="waiting"} 1
	`), "turnledger_projection_dead_letters"))
	must.Get(letters.DropDeadLetter(t.Context(), at, projections.Drop{Reason: "a test", By: "me"}))(t)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP turnledger_projection_dead_letters Dead letters that there are, by projection and state.
		# TYPE turnledger_projection_dead_letters gauge
		turnledger_projection_dead_letters{projection="kept",state="dropped"} 1
		turnledger_projection_dead_letters{projection="kept",state="waiting"} 0
	`), "turnledger_projection_dead_letters"))
	require.True(t, must.Get(letters.RetryDeadLetter(t.Context(), at))(t).Applied)
	require.Empty(t, must.Get(letters.DeadLetters(t.Context()))(t))

	v.set(errors.New("no answer"))
	n := must.Get(testutil.GatherAndCount(reg, "turnledger_projection_dead_letters"))(t)
	require.Zero(t, n, "no letters would be a lie")
}

// refusing is a view that can apply no event.
type refusing struct{ *kept }

func (r refusing) Apply(ctx context.Context, b projections.Batch) error {
	if len(b.Events) > 0 {
		return projections.Permanent(errors.New("a test"))
	}
	return r.kept.Apply(ctx, b)
}

func TestAnEntryBoundsItsDeadLetters(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i := range 5 {
		natstest.Append(t, log, &events.SessionLinked{SessionID: fmt.Sprint("s", i), IdentityID: "ada"})
	}
	f := newFleet(log)
	v := refusing{&kept{}}
	v.set(nil)
	add(t, f, fleet.Entry{View: v, Feeds: true, Letters: 2})
	natstest.Run(t, f.Run)
	hang.Until(t, func() bool {
		at, err := v.Applied(t.Context(), 0)
		return err == nil && at.Seq == 5
	})
	letters := must.Get(f.DeadLetters()[0].DeadLetters(t.Context()))(t)
	require.Len(t, letters, 2)
	require.EqualValues(t, 5, letters[1].Position.Seq)
}

func TestMetricsOfWhatThisProcessFeeds(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	f := newFleet(log)
	add(t, f, inMemory())
	v := &kept{}
	v.set(nil, projections.Checkpoint{Seq: at.Seq, EventID: "another", Created: log.Created(0)})
	m := add(t, f, fleet.Entry{View: v, Feeds: true})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(f)
	natstest.Run(t, f.Run)
	names := []string{
		"turnledger_projection_lag_events", "turnledger_projection_lag_seconds", "turnledger_projection_failed",
		"turnledger_log_head_sequence",
	}
	hang.Until(t, func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP turnledger_log_head_sequence Sequence of the last event of a partition.
		# TYPE turnledger_log_head_sequence gauge
		turnledger_log_head_sequence{partition="0"} 1
		# HELP turnledger_projection_failed 1 where a projection has stopped, since the log is not the one it followed.
		# TYPE turnledger_projection_failed gauge
		turnledger_projection_failed{partition="0",projection="kept"} 1
		turnledger_projection_failed{partition="0",projection="recent"} 0
		# HELP turnledger_projection_lag_events Events between what a projection has applied and the head of the log.
		# TYPE turnledger_projection_lag_events gauge
		turnledger_projection_lag_events{partition="0",projection="recent"} 0
		# HELP turnledger_projection_lag_seconds Age of the first event that a projection has not applied yet.
		# TYPE turnledger_projection_lag_seconds gauge
		turnledger_projection_lag_seconds{partition="0",projection="recent"} 0
	`), names...) == nil
	}, "a view of another log has no lag")
	require.ErrorIs(t, m.Readable(), projections.ErrStream)
}

func TestRebuildsOfViewsThatAreNotKeptHere(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f := newFleet(log)
	v := newKept()
	add(t, f, fleet.Entry{View: v, Reads: true})
	add(t, f, inMemory())
	f.AddWorker(fleet.Worker{Name: "effect"})
	for name, want := range map[string]error{
		"nothing": projections.ErrNoProjection, "kept": projections.ErrNoProjection, "elsewhere": projections.ErrNotFed,
		"effect": projections.ErrNoProjection,
	} {
		_, err := f.Rebuild(t.Context(), name)
		require.ErrorIs(t, err, want, name)
		_, verified := f.Verify(t.Context(), name, 0, nil, nil)
		require.ErrorIs(t, verified, want, name)
		there := name == "kept" || name == "effect"
		require.Equal(t, there, errors.Is(err, projections.ErrNotRebuildable), name)
		require.Equal(t, there, errors.Is(verified, projections.ErrNotRebuildable), name)
	}
	must.Fail(f.CancelRebuild(t.Context(), "kept"))(t, projections.ErrNotRebuildable)
	must.Fail(f.CancelRebuild(t.Context(), recent.Name))(t, projections.ErrNoRebuild)

	natstest.Run(t, f.Run)
	before := time.Now()
	require.EqualValues(t, 2, must.Get(f.Rebuild(t.Context(), recent.Name))(t))
	hang.Until(t, func() bool {
		all, err := f.Projections(t.Context())
		return err == nil && len(all) == 2 && all[0].Generation == 2
	}, "the new generation is served")
	hang.Until(t, func() bool {
		all, err := f.Projections(t.Context())
		return err == nil && all[0].RebuildBegun.After(before) && all[0].RebuildDone.After(all[0].RebuildBegun)
	}, "it is known when the rebuild ran")
	sessions := must.Get(f.Verify(t.Context(), recent.Name, 0, func(uint64, uint64) error { return nil },
		func(d projections.Difference) error { return errors.New(d.SessionID) }))(t)
	require.Zero(t, sessions)
}

func TestAViewInMemoryIsFedHere(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Log: natstest.Log(t, 1)})
	view := memory.New(recent.Limits{}, session.Rules{}, nil)
	_, err := f.Add(t.Context(), fleet.Entry{View: view, Rebuildable: view, Reads: true, InMemory: true})
	require.ErrorContains(t, err, "set Feeds")
}

// A view whose store answers at last, or whose index another process makes at last, is read soon after.
func TestAViewIsReadSoonAfterItsStoreAnswers(t *testing.T) {
	t.Parallel()
	v := newKept()
	looks, last, waited := 0, time.Time{}, make(chan time.Duration, 1)
	f := newFleet(natstest.Log(t, 1))
	m := add(t, f, fleet.Entry{View: v, Reads: true, Open: func(context.Context) error {
		if looks++; looks < 5 {
			last = time.Now()
			return projections.Unavailable(errors.New("no index yet"))
		}
		waited <- time.Since(last)
		return nil
	}})
	natstest.Run(t, f.Run)
	require.Less(t, <-waited, 10*time.Second)
	hang.Until(t, func() bool { return m.Readable() == nil })
}

func TestPlacesAreReachedWithWhatTheyApplied(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := newKept()
	f := newFleet(log)
	add(t, f, fleet.Entry{View: v, Reads: true})
	f.AddWorker(fleet.Worker{Name: "beside", Applied: func(context.Context, int) (events.Position, error) {
		return at, nil
	}})
	places := f.Places()
	require.Len(t, places, 2)
	require.Equal(t, "kept", places[0].Name())
	require.Equal(t, "beside", places[1].Name())
	reached := func(i int) bool { return must.Get(places[i].Reached(t.Context(), at))(t) }
	require.False(t, reached(0))
	require.True(t, reached(1))
	v.set(errors.New("no answer"))
	require.EqualError(t, must.Err(places[0].Reached(t.Context(), at)), "no answer")
	v.set(nil)
	must.Get(overwrite.On(log).Erase(t.Context(), at))(t)
	require.True(t, reached(0), "what it has not applied will never come")
}

func TestStatusOfWhatThisProcessFeeds(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	at := question(t, log)
	f := newFleet(log)
	add(t, f, inMemory())
	before := f.Status(t.Context())
	require.Len(t, before, 2, "one for each partition")
	require.Equal(t, "starting", before[at.Partition].State)
	require.EqualValues(t, 1, before[at.Partition].LagEvents)

	natstest.Run(t, f.Run)
	hang.Until(t, func() bool {
		s := f.Status(t.Context())[at.Partition]
		return s.State == "live" && s.Position == at && s.Head == at && s.LagEvents == 0
	})
	all := must.Get(f.Projections(t.Context()))(t)
	require.Len(t, all, 2)
	require.Equal(t, recent.Name, all[0].Name)
	require.True(t, all[0].Rebuildable)
	require.EqualValues(t, 1, all[0].Generation)
}

// only returns the status of the fleet's only partition.
func only(t *testing.T, f *fleet.Fleet) projections.Status {
	t.Helper()
	all := must.Get(f.Projections(t.Context()))(t)
	require.Len(t, all, 1)
	require.Equal(t, "kept", all[0].Name)
	return all[0]
}

func TestStatusOfWhatOtherProcessesFeed(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := &kept{}
	f := newFleet(log)
	add(t, f, fleet.Entry{View: v})
	require.Empty(t, f.Status(t.Context()), "this process feeds nothing")

	v.set(nil)
	s := only(t, f)
	require.Equal(t, "not_fed", s.State)
	require.EqualValues(t, 1, s.LagEvents)
	require.Equal(t, at, s.Head)

	v.set(nil, projections.Checkpoint{Seq: at.Seq, EventID: "another", Created: log.Created(0)})
	s = only(t, f)
	require.Equal(t, "failed", s.State)
	require.True(t, s.LagUnknown)
	require.Contains(t, s.LastError, "another event stands at")

	v.set(errors.New("no answer"))
	s = only(t, f)
	require.Equal(t, projections.Unknown, s.State)
	require.True(t, s.HeadUnknown)
	require.Equal(t, "no answer", s.LastError)
}

// A view that has not been opened yet says why, also where its checkpoints are kept in another store than its rows.
func TestAViewThatWaitsForItsStoreSaysWhy(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	for state, e := range map[string]fleet.Entry{"retrying": {Feeds: true}, "not_fed": {Reads: true}} {
		f, v, away := newFleet(log), &kept{}, atomic.Bool{}
		away.Store(true)
		v.set(nil)
		e.View, e.Open = v, func(context.Context) error {
			if away.Load() {
				return projections.Unavailable(errors.New("connection refused"))
			}
			return nil
		}
		add(t, f, e)
		s := only(t, f)
		require.Equal(t, state, s.State)
		require.Contains(t, s.LastError, "connection refused", state)
		require.Equal(t, at, s.Head, state)
		require.EqualValues(t, 1, s.LagEvents, state)
		natstest.Run(t, f.Run)
		away.Store(false)
		hang.Until(t, func() bool {
			s = only(t, f)
			return s.LastError == "" && (s.State == "live" || !e.Feeds && s.State == "not_fed")
		}, "%s", state)
	}
}

// A view that is opened while all are listed is listed.
func TestAViewThatIsOpenedMeanwhileIsListed(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f, opens, waits := newFleet(log), &kept{}, &kept{}
	opens.set(nil)
	waits.set(nil)
	var open atomic.Bool
	add(t, f, fleet.Entry{View: opens, Feeds: true, Open: func(context.Context) error {
		if !open.Load() {
			return projections.Unavailable(errors.New("connection refused"))
		}
		return nil
	}})
	opened := func() bool { return len(f.Status(t.Context())) == 2 }
	add(t, f, fleet.Entry{View: waits, Feeds: true, Outdated: func(ctx context.Context) error {
		open.Store(true)
		for !opened() && pause.For(ctx, time.Millisecond) {
		}
		return nil
	}})
	natstest.Run(t, f.Run)
	require.False(t, opened())
	all := must.Get(f.Projections(t.Context()))(t)
	require.True(t, opened())
	require.Len(t, all, 2)
}

func TestAViewThatFollowsTheLogMayBeOutdated(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	f := newFleet(log)
	v := newKept()
	add(t, f, fleet.Entry{View: v, Feeds: true, Outdated: func(context.Context) error {
		return errors.New("rebuild it")
	}})
	require.Equal(t, "starting", only(t, f).State)
	natstest.Run(t, f.Run)
	hang.Until(t, func() bool {
		s := only(t, f)
		return s.State == "outdated" && s.LastError == "rebuild it" && s.Position == at && s.LagEvents == 0
	})
}
