package jetlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: erased}))(t)
	var asked []uint64
	for seq := uint64(1); seq <= all+2; seq += 2 {
		asked = append(asked, seq)
	}
	found := must.Get(log.Some(t.Context(), 0, asked))(t)
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
	found = must.Get(log.Some(t.Context(), 0, nil))(t)
	require.Empty(t, found)
	require.Error(t, must.Err(log.Some(t.Context(), 1, asked)), "there is no such partition")
}

// TestTheLastOfASessionIsSeen holds that Seen follows a session's events, whatever other sessions have.
func TestTheLastOfASessionIsSeen(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	seen := func(want uint64, session string) {
		t.Helper()
		last := must.Get(log.Seen(t.Context(), session))(t)
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
	must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: 3}))(t)
	seen(1, "s")
}
