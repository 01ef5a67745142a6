//go:build alone

package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
)

// TestHeap holds the view to at most twice the canonical JSON of the turns that it holds, also where each session has
// one turn, and where all but the sessions in use are packed, to no more than that JSON.
//
//conformance:f27
func TestHeap(t *testing.T) {
	// From 32 turns on a state keeps an index.
	for perSession, turns := range map[int]int{1: 30_000, 10: 100_000, 40: 20_000} {
		for name, c := range map[string]struct {
			view *memory.View
			most float64
		}{
			"open":   {memory.New(recent.Limits{}, rules, nil), 2},
			"packed": {memory.NewPacked(recent.Limits{}, rules, nil, 0), 1},
		} {
			t.Run(fmt.Sprintf("%d turns a session, %s", perSession, name), func(t *testing.T) {
				ratio := heapRatio(t, c.view, recenttest.Traffic{Sessions: turns / perSession, Turns: perSession})
				require.LessOrEqual(t, ratio, c.most)
			})
		}
	}
}

// heapRatio feeds a view, and returns its heap in times of the canonical JSON of its turns.
func heapRatio(t *testing.T, view *memory.View, tr recenttest.Traffic) float64 {
	t.Helper()
	before := heap()
	tr.Feed(t, view)
	held := heap() - before
	canonical, turns := 0, tr.Sessions*tr.Turns
	for n := range tr.Sessions {
		snap := must.Get(view.Load(context.Background(), tr.SessionID(n), 0, -1))(t)
		for _, turn := range snap.State.Turns {
			canonical += recenttest.CanonicalJSON(snap.State, turn)
		}
	}
	ratio := float64(held) / float64(canonical)
	t.Logf("%d B of JSON and %d B of heap a turn: %.2f times", canonical/turns, held/turns, ratio)
	return ratio
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestHeapOfWhatHasExpired: sessions whose time is over leave nothing on the heap.
func TestHeapOfWhatHasExpired(t *testing.T) {
	clock := time.Now().UTC()
	const sessions = 10_000
	view := memory.New(limits, rules, func() time.Time { return clock })
	tr := recenttest.Traffic{Sessions: sessions, Turns: 5}
	before := heap()
	tr.Feed(t, view)
	held := heap() - before
	clock = clock.Add(2 * ttl)
	// Batches of nothing that is kept: the view clears a part with each.
	recenttest.Traffic{Sessions: 500, Turns: 1, Batch: 1}.Feed(t, view)
	require.Zero(t, view.SessionsHeld())
	left := heap() - before
	t.Logf("%d B of heap a session, %d B after it has expired", held/sessions, left/sessions)
	require.Positive(t, held/sessions)
	require.Less(t, left, held/20)
	runtime.KeepAlive(view)
}
