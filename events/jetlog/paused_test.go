//go:build linux

package jetlog_test

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestLeaderThatIsPaused stops the process of a leader until the others have elected
// another one, and lets it go on: it thinks then that it leads, and finds answers of its
// followers on its wires that are as old as its sleep. Readers that reach nobody else are
// refused, or see what was acknowledged.
func TestLeaderThatIsPaused(t *testing.T) {
	rounds := 1
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 30
	}
	n := natstest.StartNodes(t, natstest.NodesOptions{})
	log, err := jetlog.Open(t.Context(), n.Connect(t), jetlog.Config{Replicas: 3, Outside: true})
	require.NoError(t, err)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	l := startLoad(t, log, 8)
	for range rounds {
		old := n.Leader(t, events.StreamName(0))
		nc := n.Connect(t, old)
		only, err := jetlog.Open(t.Context(), nc, jetlog.Config{Replicas: 3, Outside: true})
		require.NoError(t, err)
		r := &heads{log: only, load: l, stop: make(chan struct{})}
		for range 16 {
			r.all.Go(func() { r.ask(t) })
			r.all.Go(func() { r.askPlainly(nc) })
		}
		r.goesOn(t)
		n.Pause(t, old)
		n.Leader(t, events.StreamName(0), (old+1)%3, (old+2)%3)
		l.goesOn(t, 200)
		n.Resume(t, old)
		r.goesOn(t)
		close(r.stop)
		r.all.Wait()
		t.Logf("%d heads read, %d refused, %d old; of the node's own words %d were old", r.read.Load(),
			r.refused.Load(), r.old.Load(), r.oldWords.Load())
		require.Zero(t, r.old.Load(), "stale heads")
		n.Ready(t)
	}
	l.end(t, tail)
}

// heads reads heads and holds them against a load.
type heads struct {
	log                *jetlog.Log
	load               *load
	stop               chan struct{}
	all                sync.WaitGroup
	read, refused, old atomic.Int64
	// oldWords of the node, taken as they are.
	oldWords atomic.Int64
}

func (r *heads) ask(t *testing.T) {
	for {
		select {
		case <-r.stop:
			return
		default:
		}
		before := r.load.acked.Load()
		head, err := r.log.Head(t.Context(), 0)
		switch {
		case errors.Is(err, jetlog.ErrUnavailable):
			r.refused.Add(1)
		case err != nil:
			t.Error(err)
			return
		default:
			r.read.Add(1)
			if int64(head.Seq) < before {
				r.old.Add(1)
			}
		}
	}
}

// askPlainly asks the node as any client would, and believes it.
func (r *heads) askPlainly(nc *nats.Conn) {
	for {
		select {
		case <-r.stop:
			return
		default:
		}
		before := r.load.acked.Load()
		var said struct {
			State struct {
				LastSeq int64 `json:"last_seq"`
			}
		}
		m, err := nc.Request("$JS.API.STREAM.INFO."+events.StreamName(0), nil, 5*time.Second)
		if err == nil && json.Unmarshal(m.Data, &said) == nil && said.State.LastSeq > 0 && said.State.LastSeq < before {
			r.oldWords.Add(1)
		}
	}
}

// goesOn waits for more heads.
func (r *heads) goesOn(t *testing.T) {
	t.Helper()
	from := r.read.Load()
	hang.Until(t, func() bool { return r.read.Load() > from+20 },
		"no head is read any more")
}
