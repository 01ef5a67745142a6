package fleet_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/recent"
)

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
