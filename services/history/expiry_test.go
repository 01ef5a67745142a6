package history_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/history"
)

// TestASessionThatHasExpiredKeepsNoMemory measures the heap that 10,000 sessions leave
// behind when they have been silent for their life.
func TestASessionThatHasExpiredKeepsNoMemory(t *testing.T) {
	const sessions = 10_000
	log := natstest.Log(t, 1)
	for n := range sessions {
		c := start(fmt.Sprint("s", n), "r")
		_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{
			&events.TurnStarted{TurnID: events.TurnID(c.SessionID, c.RequestID), SessionID: c.SessionID,
				RequestID: c.RequestID, Question: c.Question},
		}})
		require.NoError(t, err)
	}
	s := runWith(t, log, history.Config{Policy: policy, Rules: conversation.Rules{SessionTTL: 15 * time.Second}})
	before := heap()
	for n := range sessions {
		_, err := s.StartTurn(t.Context(), start(fmt.Sprint("s", n), "r"))
		require.NoError(t, err)
	}
	weight, _ := s.InMemory()
	require.Positive(t, weight)
	held := heap() - before
	require.Eventually(t, func() bool { return s.Sessions() == 0 }, time.Minute, 100*time.Millisecond)
	left := heap() - before
	t.Logf("%d B of heap a session; %d B after it has expired", held/sessions, left/sessions)
	require.Less(t, left, held/10)
	_, err := s.StartTurn(t.Context(), start("s0", "r"))
	require.NoError(t, err, "it is read from the log again")
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
