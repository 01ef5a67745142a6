package follower_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/follower"
)

// slowDisk is a log where, while slow is true, no event becomes durable.
type slowDisk struct {
	*jetlog.Log
	slow atomic.Bool
}

func (l *slowDisk) Durable(ctx context.Context, at events.Position) error {
	for l.slow.Load() {
		if !pause.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return l.Log.Durable(ctx, at)
}

// A reader whose own tails break again and again is given each event once, and none is left out where a tail broke.
func TestAReaderGoesOnWhereItsTailBroke(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := &shaky{Log: natstest.LogOn(t, server, 1)}
	log.well.Store(true)
	writes := &scribe{
		t: t, log: log.Log, nc: natstest.Connect(t, server), rng: rand.New(rand.NewPCG(1, 2)), sessions: 12,
	}
	writes.write(400)
	want := privately(t, log.Log, 0)
	for _, raw := range []bool{true, false} {
		breaks := 0
		// A tail that has read all before it breaks has nothing left to break at: then another one reads it all.
		for range 50 {
			// One subscriber at a time, so that the newest tail is its own.
			s := &subscriber{name: fmt.Sprint("raw=", raw), raw: raw, rng: rand.New(rand.NewPCG(3, 4))}
			next, stop := s.subscribe(follower.Alone(log, follower.Config{Rules: rules}), 0)
			for s.at() < want[len(want)-1].Position.Seq {
				batch, err := next(t.Context())
				if err != nil {
					require.ErrorIs(t, err, jetlog.ErrClosed)
					breaks++
				}
				s.take(batch)
				log.breakOne(func(n int) int { return n - 1 }) // the newest
			}
			stop()
			s.isGiven(t, want)
			if breaks > 1 {
				break
			}
		}
		require.Greater(t, breaks, 1, "raw=%v", raw)
	}
}

// Nobody is given an event that is not durable yet: neither readers of events nor those of verdicts.
func TestNobodyIsGivenWhatTheDiskDoesNotHave(t *testing.T) {
	t.Parallel()
	log := &slowDisk{Log: natstest.Log(t, 1)}
	f := follower.New(log, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	read := readers(t, f, 0)
	// Both join: what they get then comes from the rings. A reader of its own waits for the log's own gate.
	hang.Until(t, func() bool {
		writeTurns(t, log.Log, fmt.Sprint("join", time.Now().UnixNano()), 1, 10)
		for name, next := range read {
			for head, at := newest(t, log.Log), uint64(0); at < head; {
				seqs, err := next(t.Context())
				require.NoError(t, err, name)
				at = seqs[len(seqs)-1]
			}
		}
		return f.Joined() == 2
	})
	log.slow.Store(true)
	writeTurns(t, log.Log, "slow", 1, 10)
	head := newest(t, log.Log)
	require.NoError(t, f.Folded(0).Wait(t.Context(), head))
	getNothing(t, read)
	log.slow.Store(false)
	getOne(t, read, head)
}
