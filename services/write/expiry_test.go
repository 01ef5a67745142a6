package write_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
)

// TestASessionThatHasExpiredKeepsNoMemory measures the heap that 10,000 sessions leave
// behind when they have been silent for their life.
func TestASessionThatHasExpiredKeepsNoMemory(t *testing.T) {
	const sessions = 10_000
	log := natstest.Log(t, 1)
	var turns []decide.Start
	for n := range sessions {
		turns = append(turns, start(fmt.Sprint("s", n), "r"))
	}
	run(t, log).StartTurns(t.Context(), turns)
	s := runWith(t, log, write.Config{Policy: policy, Rules: session.Rules{SessionTTL: 15 * time.Second}})
	before := heap()
	for _, o := range s.StartTurns(t.Context(), turns) {
		require.NoError(t, o.Err)
		require.True(t, o.Turn.Duplicate)
	}
	weight, _ := s.InMemory()
	require.Positive(t, weight)
	held := heap() - before
	hang.Until(t, func() bool { return s.Sessions() == 0 })
	left := heap() - before
	t.Logf("%d B of heap a session; %d B after it has expired", held/sessions, left/sessions)
	require.Less(t, left, held/10)
	must.Get(s.StartTurn(t.Context(), start("s0", "r")))(t) // it is read from the log again
}

// A session that has expired shows no turn, so a summary can't cover one.
func TestASessionThatHasExpiredIsNotSummarised(t *testing.T) {
	t.Parallel()
	const ttl = 200 * time.Millisecond
	s := runWith(t, natstest.Log(t, 1), write.Config{Policy: policy, Rules: session.Rules{SessionTTL: ttl}})
	must.Get(s.StartTurn(t.Context(), wholeTurn("s", "r")))(t)
	pause.For(t.Context(), 2*ttl)
	_, err := s.SummarizeSession(t.Context(), decide.Summarize{
		ThroughTurnID: events.TurnID("s", "r"),
		Summary:       events.SessionSummarized{SessionID: "s", RequestID: "m", SummaryNeutral: "of one"},
	})
	var invalid *decide.Invalid
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "through_turn_id", invalid.Field)
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
