package jetlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
)

func TestAppendedEventsAreReadBack(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := logtest.Add(t, log, "s", "r1", "one")
	require.NoError(t, log.Durable(t.Context(), at))
	require.Equal(t, "0:1", at.String())
	require.Equal(t, "0:3", logtest.Append(t, log, link("s"), logtest.Started("s", "r2", "two")).Position.String())
	got := logtest.Read(t, log, "s")
	require.Len(t, got, 3)
	require.Equal(t, events.TypeSessionLinked, got[1].Type)
	require.Equal(t, "two", got[2].Fact.(*events.TurnStarted).QuestionNeutral)
	require.EqualValues(t, 3, logtest.Head(t, log, 0))
	require.Empty(t, logtest.Read(t, log, "other"))
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
