//go:build linux

package jetlog_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestLeaderThatIsPaused stops the process of a leader until the others have elected
// another one, and lets it go on: it thinks then that it leads, and finds answers of its
// followers on its wires that are as old as its sleep. Readers that reach nobody else are
// refused, or see what was acknowledged.
func TestLeaderThatIsPaused(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 30
	}
	n := natstest.StartNodes(t, natstest.NodesOptions{})
	log := must.Get(jetlog.Open(t.Context(), n.Connect(t), jetlog.Config{Replicas: 3, Outside: true}))(t)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	l := startLoad(t, log, 8)
	for range rounds {
		old := n.Leader(t, events.StreamName(0))
		nc := n.Connect(t, old)
		only := must.Get(jetlog.Open(t.Context(), nc, jetlog.Config{Replicas: 3, Outside: true}))(t)
		r := &heads{log: only, load: l}
		ctx, stop := context.WithCancel(t.Context())
		for range 16 {
			r.all.Go(func() { r.ask(ctx, t) })
		}
		goesOn := func() {
			from := r.read.Load()
			hang.Until(t, func() bool { return r.read.Load() > from+20 }, "no head is read any more")
		}
		goesOn()
		n.Pause(t, old)
		n.Leader(t, events.StreamName(0), (old+1)%3, (old+2)%3)
		l.goesOn(t, 200)
		n.Resume(t, old)
		goesOn()
		stop()
		r.all.Wait()
		t.Logf("%d heads read, %d refused, %d old", r.read.Load(), r.refused.Load(), r.old.Load())
		require.Zero(t, r.old.Load(), "stale heads")
		n.Ready(t)
	}
	l.end(t, tail)
}
