package jetlog_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

func TestRestartKeepsEverythingAndKnowsDuplicates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for life := range 3 {
		s := natstest.ServerIn(t, dir, embedded.Group)
		log := natstest.LogOn(t, s, 4)
		for i := range 50 * life {
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", fmt.Sprint(i))}})
			require.NoError(t, err)
			require.Equal(t, jetlog.Ack{Position: events.Position{Partition: log.Partition("s"), Seq: uint64(i + 1)},
				Duplicate: true}, ack)
			require.NoError(t, log.Durable(t.Context(), ack.Position))
		}
		for i := 50 * life; i < 50*(life+1); i++ {
			f := logtest.Fact("s", fmt.Sprint(i))
			want = append(want, f.EventID())
			require.False(t, logtest.Append(t, log, f).Duplicate)
		}
		require.Equal(t, want, logtest.IDs(t, log, "s"))
		s.Stop()
	}
}

func TestServerThatRestartsMidLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	r := logtest.NewRestarting(t)
	log := r.Log()
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	const writers, each = 8, 60
	var load sync.WaitGroup
	var done atomic.Int64
	for w := range writers {
		load.Go(func() {
			for i := range each {
				fact := logtest.Fact(fmt.Sprint("s", w), fmt.Sprint(i))
				if !assert.NoError(t, logtest.Persist(t.Context(), log, fact)) {
					return
				}
				done.Add(1)
			}
		})
	}
	for n := range int64(3) {
		hang.Until(t, func() bool { return done.Load() > n*writers*each/4 })
		r.Restart()
	}
	load.Wait()
	for w := range writers {
		var want []string
		for i := range each {
			want = append(want, logtest.Fact(fmt.Sprint("s", w), fmt.Sprint(i)).EventID())
		}
		require.Equal(t, want, logtest.IDs(t, log, fmt.Sprint("s", w)))
	}
	followed(t, tail, writers*each)
}

// followed holds that a tail gives events 1 to n, each once and in order.
func followed(t *testing.T, tail *jetlog.Tail, n int) {
	t.Helper()
	ctx := deadline(t, hang.Limit)
	for seen := uint64(0); seen < uint64(n); {
		batch, err := tail.Next(ctx)
		require.NoError(t, err, "after %d of %d", seen, n)
		for _, m := range batch {
			seen++
			require.Equal(t, seen, m.Position.Seq)
		}
	}
}
