package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
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
	require.Eventually(t, func() bool {
		s := f.Status(t.Context())[at.Partition]
		return s.State == "live" && s.Position == at && s.Head == at && s.LagEvents == 0
	}, 20*time.Second, 10*time.Millisecond)
	all, err := f.Projections(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, recent.Name, all[0].Name)
	require.True(t, all[0].Rebuildable)
	require.EqualValues(t, 1, all[0].Generation)
}

func TestStatusOfWhatOtherProcessesFeed(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := &kept{}
	f := newFleet(log)
	add(t, f, fleet.Entry{View: v})
	status := func() projections.Status {
		all, err := f.Projections(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "kept", all[0].Name)
		return all[0]
	}
	require.Empty(t, f.Status(t.Context()), "this process feeds nothing")

	v.set(nil)
	s := status()
	require.Equal(t, "not_fed", s.State)
	require.EqualValues(t, 1, s.LagEvents)
	require.Equal(t, at, s.Head)

	v.set(nil, projections.Checkpoint{Seq: at.Seq, EventID: "another", Created: log.Created(0)})
	s = status()
	require.Equal(t, "failed", s.State)
	require.True(t, s.LagUnknown)
	require.Contains(t, s.LastError, "another event stands at")

	v.set(errors.New("no answer"))
	s = status()
	require.Equal(t, projections.Unknown, s.State)
	require.True(t, s.HeadUnknown)
	require.Equal(t, "no answer", s.LastError)
}
