package jetlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
)

// TestSomeEventsAreThoseOfTheirPlaces asks for more events than are asked for at once, also where there is none.
func TestSomeEventsAreThoseOfTheirPlaces(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const all, erased = 40, 7
	for i := range all {
		logtest.Add(t, log, fmt.Sprint("s", i%3), fmt.Sprint("r", i+1), "x")
	}
	_, err := overwrite.On(log).Erase(t.Context(), events.Position{Seq: erased})
	require.NoError(t, err)
	var asked []uint64
	for seq := uint64(1); seq <= all+2; seq += 2 {
		asked = append(asked, seq)
	}
	found, err := log.Some(t.Context(), 0, asked)
	require.NoError(t, err)
	want := map[uint64]string{}
	for _, seq := range asked {
		if seq != erased && seq <= all {
			want[seq] = fmt.Sprintf("s%d r%d", (seq-1)%3, seq)
		}
	}
	got := map[uint64]string{}
	for _, e := range found {
		got[e.Position.Seq] = e.SessionID + " " + e.Fact.(*events.TurnStarted).RequestID
	}
	require.Equal(t, want, got)
	found, err = log.Some(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = log.Some(t.Context(), 1, asked)
	require.Error(t, err, "there is no such partition")
}

// TestTheLastOfASessionIsSeen holds that Seen follows a session's events, whatever other sessions have.
func TestTheLastOfASessionIsSeen(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	seen := func(want uint64, session string) {
		t.Helper()
		last, err := log.Seen(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, want, last)
	}
	seen(0, "s")
	logtest.Add(t, log, "s", "r1", "x")
	logtest.Add(t, log, "o", "r1", "x")
	seen(1, "s")
	logtest.Add(t, log, "s", "r2", "x")
	seen(3, "s")
	seen(2, "o")
	seen(0, "none")
	_, err := overwrite.On(log).Erase(t.Context(), events.Position{Seq: 3})
	require.NoError(t, err)
	seen(1, "s")
}
