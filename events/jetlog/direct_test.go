package jetlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/logtest"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/natstest"
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
