package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = conversation.Rules{SessionTTL: 24 * time.Hour}

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
	return natstest.Append(t, log, &events.TurnStarted{
		TurnID: events.TurnID("s", "r"), SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"},
	})
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
	view := memory.New(recent.Limits{}, conversation.Rules{}, nil)
	_, err := f.Add(t.Context(), fleet.Entry{View: view, Rebuildable: view, Reads: true, InMemory: true})
	require.ErrorContains(t, err, "set Feeds")
}
