//go:build linux

package deployment_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// waitAnswers requires that every server acknowledges a write to every partition again within a time,
// and returns how long that took.
func (s *turnLoad) waitAnswers(t *testing.T, within time.Duration, servers ...*stack.Process) time.Duration {
	t.Helper()
	s.probes++
	ctx, cancel := context.WithTimeout(t.Context(), within+30*time.Second)
	defer cancel()
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range servers {
		for k := range partitions {
			id := sessionOf(k, fmt.Sprintf("probe-%d-%d", s.probes, i))
			g.Go(func() error {
				one := turnLoad{seed: s.seed, servers: []*stack.Process{p}}
				_, err := one.record(ctx, id, 0, rand.New(rand.NewPCG(s.seed, 0)))
				if took := time.Since(began); err == nil && took > within {
					return fmt.Errorf("seed %d: partition %d at server %d answers only after %s", s.seed, k, i, took)
				}
				return err
			})
		}
	}
	require.NoError(t, g.Wait())
	return time.Since(began)
}

// sessionOf returns a session of a partition.
func sessionOf(partition int, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); events.Partition(id, partitions) == partition {
			return id
		}
	}
}

// waitTurns waits for more turns.
func (s *turnLoad) waitTurns(t *testing.T, more int64) {
	t.Helper()
	from := s.turns.Load()
	hang.Until(t, func() bool { return t.Failed() || s.turns.Load() >= from+more }, "no turn is recorded any more")
}

// finish stops the load and compares what was acknowledged with the log, with what each server shows, and with the
// views.
func (s *turnLoad) finish(t *testing.T, nodes *natstest.Nodes) {
	t.Helper()
	close(s.stop)
	s.all.Wait()
	require.False(t, t.Failed())
	nodes.Agree(t)
	s.checkLog(t, nodes)

	var g errgroup.Group
	g.SetLimit(8)
	for _, x := range s.sessions {
		for way, p := range s.servers {
			g.Go(func() error {
				answered, err := s.readSession(t.Context(), p, x, way)
				if err == nil && !answered {
					err = fmt.Errorf("seed %d: %s is not answered though nothing is broken", s.seed, x.id)
				}
				return err
			})
		}
	}
	require.NoError(t, g.Wait())
	for _, x := range s.sessions {
		require.Equal(t, x.acknowledged, x.shown, "seed %d: %s shows what nobody wrote", s.seed, x.id)
	}
	for _, p := range s.servers {
		p.WaitNoLag(t)
	}
	code, out, errs := s.servers[0].Run(t, "projections", "verify")
	require.Equal(t, stack.ExitDone, code, out+errs)
	require.Contains(t, out, "recent: ")
	require.Contains(t, out, "audit: ")
	t.Logf("seed %d: %d turns acknowledged, %d reads, %d of them refused", s.seed, s.turns.Load(), s.reads.Load(),
		s.refused.Load())
}

// checkLog reads the whole log, past the API: every acknowledged half stands there once, each session in
// its order.
func (s *turnLoad) checkLog(t *testing.T, nodes *natstest.Nodes) {
	t.Helper()
	log, err := jetlog.Open(t.Context(), nodes.Connect(t),
		jetlog.Config{Partitions: partitions, Replicas: 3, Outside: true})
	require.NoError(t, err)
	want := map[string]int{}
	for _, x := range s.sessions {
		want[x.id] = x.acknowledged
	}
	found, seen := map[string]int{}, map[string]bool{}
	for k := range partitions {
		head, err := log.Head(t.Context(), k)
		require.NoError(t, err)
		tail, err := log.Tail(t.Context(), k, 0, jetlog.TailOptions{})
		require.NoError(t, err)
		for at := uint64(0); at < head.Seq; {
			batch, err := tail.Next(t.Context())
			require.NoError(t, err)
			for _, m := range batch {
				at = m.Position.Seq
				e := m.Recorded()
				require.False(t, seen[e.ID], "seed %d: %s stands twice", s.seed, e.ID)
				seen[e.ID] = true
				id := e.SessionID
				if _, ok := want[id]; !ok || (e.Type != events.TypeTurnStarted && e.Type != events.TypeTurnFinalized) {
					continue
				}
				half := found[id]
				kind := []string{"started", "finalized"}[half%2]
				require.Equal(t, events.TurnID(id, fmt.Sprint("r", half/2)).String()+"."+kind, e.ID,
					"seed %d: half %d of %s", s.seed, half, id)
				found[id]++
			}
		}
		tail.Close()
	}
	for id, n := range want {
		require.Equal(t, n, found[id], "seed %d: %s", s.seed, id)
	}
}

// nodeOrder returns the nodes in an order of the seed.
func nodeOrder(seed uint64) []int { return rand.New(rand.NewPCG(seed, 7)).Perm(3) }
