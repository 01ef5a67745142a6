package jetlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

func TestAppendedEventsAreReadBack(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Started("s", "r1", "one")}})
	require.NoError(t, err)
	require.NoError(t, log.Durable(t.Context(), ack.Position))
	require.Equal(t, "0:1", ack.Position.String())
	zero := uint64(0)
	_, err = log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Started("s", "r2", "two")},
		Expect: &zero})
	var conflict *jetlog.Conflict
	require.ErrorAs(t, err, &conflict)
	require.EqualValues(t, 1, conflict.Last)
	one := uint64(1)
	batch := jetlog.Append{Facts: []events.Fact{&events.SessionLinked{SessionID: "s", IdentityID: "i"},
		logtest.Started("s", "r2", "two")}, Expect: &one}
	ack, err = log.Append(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, "0:3", ack.Position.String())
	got := logtest.Read(t, log, "s")
	require.Len(t, got, 3)
	require.Equal(t, events.TypeSessionLinked, got[1].Type)
	require.Equal(t, "two", got[2].Fact.(*events.TurnStarted).QuestionNeutral)
	head, err := log.Head(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 3, head.Seq)
	require.Empty(t, logtest.Read(t, log, "other"))
	again, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Started("s", "r1", "one")}})
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.EqualValues(t, 1, again.Position.Seq)
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
