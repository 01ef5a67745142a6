//go:build linux

package main

import (
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// stronghold is a cluster with two servers on it, and the load that it must stand.
type stronghold struct {
	*siege
	nodes *natstest.Nodes
	rng   *rand.Rand
	env   []string
}

const (
	// answerTime is how long after a majority is back every write is answered, and
	// answerTimeAll after all nodes were killed at once.
	answerTime    = 10 * time.Second
	answerTimeAll = 30 * time.Second
)

// siegeSeed is a new one, or the one that is asked for.
func siegeSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("TURNLEDGER_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	return seed
}

func newStronghold(t *testing.T, seed uint64, opts natstest.NodesOptions, perSecond float64, writers int) *stronghold {
	t.Helper()
	h := &stronghold{nodes: natstest.StartNodes(t, opts), rng: rand.New(rand.NewPCG(seed, 1))}
	h.env = []string{
		"TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3", "TURNLEDGER_PARTITIONS=" + strconv.Itoa(besieged),
		"TURNLEDGER_REDIS_URL=" + redistest.Start(t).URL(), "TURNLEDGER_POSTGRES_URL=" + pgtest.URL(t),
	}
	var servers []*process
	for range 2 {
		servers = append(servers, start(t, append([]string{"TURNLEDGER_NATS_URL=" + h.nodes.URL()}, h.env...), "serve"))
	}
	t.Cleanup(func() {
		for _, p := range servers {
			if t.Failed() {
				said := p.log.String()
				t.Logf("%s: …%s", p.url, said[max(0, len(said)-6000):])
			}
		}
	})
	h.siege = besiege(t, seed, perSecond, writers, servers...)
	h.answers(t, answerTimeAll, servers...)
	return h
}

// calm tells how many turns there are while nothing is broken.
func (h *stronghold) calm(t *testing.T, d time.Duration) {
	t.Helper()
	before := h.turns.Load()
	<-time.After(d)
	t.Logf("unbroken: %.0f turns/s", float64(h.turns.Load()-before)/d.Seconds())
}

// fault does what is wrong, holds that writes are answered again in time, and makes all
// whole again.
func (h *stronghold) fault(t *testing.T, name string, within time.Duration, breaks, mends func()) {
	t.Helper()
	before, began := h.turns.Load(), time.Now()
	breaks()
	took := h.answers(t, within, h.servers...)
	h.goesOn(t, 20)
	require.False(t, t.Failed())
	mends()
	h.nodes.Ready(t)
	h.goesOn(t, 20)
	require.False(t, t.Failed())
	t.Logf("%s: every partition answered after %s; %d turns in %s", name, took.Round(10*time.Millisecond), h.turns.Load()-before, time.Since(began).Round(time.Second))
}

func (h *stronghold) kill(t *testing.T, i int) {
	t.Helper()
	h.fault(t, "kill -9 of node "+strconv.Itoa(i), answerTime, func() { h.nodes.Kill(t, i) }, func() { h.nodes.Start(t, i) })
}

// leader is the node that leads some partition.
func (h *stronghold) leader(t *testing.T) int {
	t.Helper()
	return h.nodes.Leader(t, events.StreamName(h.rng.IntN(besieged)))
}

// outpost is a server that reaches one node and no other.
func (h *stronghold) outpost(t *testing.T, i int) *process {
	t.Helper()
	return start(t, append([]string{"TURNLEDGER_NATS_URL=" + h.nodes.URL(i)}, h.env...), "serve", "--roles", "api,context")
}

// watch reads one session of each partition at an outpost until it is told to end, and
// gives what was answered since. Nothing that it shows is ever older than what was
// acknowledged before.
func (h *stronghold) watch(t *testing.T, p *process) (answered func() int, end func()) {
	t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	var n atomic.Int64
	for r := range 4 {
		rng := rand.New(rand.NewPCG(h.seed, uint64(r)))
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ok, err := h.look(t.Context(), p, h.anyTalk(rng), rng.IntN(2))
				if !assert.NoError(t, err) {
					return
				}
				if ok {
					n.Add(1)
				}
			}
		})
	}
	return func() int { return int(n.Swap(0)) }, func() { close(stop); all.Wait() }
}

// away takes a leader from the others, in one way or another, while a server that reaches
// nobody else is read: once another leads it answers no read, and as soon as it answers
// again it is not behind.
func (h *stronghold) away(t *testing.T, name string, takes, gives func(i int), atLeast time.Duration) {
	t.Helper()
	i := h.leader(t)
	p := h.outpost(t, i)
	answered, end := h.watch(t, p)
	require.Eventually(t, func() bool { return answered() > 0 }, time.Minute, 10*time.Millisecond, "the outpost does not answer")
	h.fault(t, name+strconv.Itoa(i), answerTime, func() { takes(i) }, func() {
		answered()
		h.goesOn(t, 20)
		require.Zero(t, answered(), "seed %d: a server that reaches node %d alone answers", h.seed, i)
		status, out, err := h.call(t.Context(), p, session(h.talks[0].id), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status, "%v", out)
		<-time.After(atLeast)
		gives(i)
	})
	require.Eventually(t, func() bool { return answered() > 0 }, time.Minute, 10*time.Millisecond, "the outpost does not answer again")
	end()
	p.kill(t)
}

func (h *stronghold) cut(t *testing.T) {
	t.Helper()
	h.away(t, "cut off node ", func(i int) { h.nodes.Isolate(t, i) }, func(int) { h.nodes.Mend() }, 0)
}

func (h *stronghold) pause(t *testing.T, d time.Duration) {
	t.Helper()
	h.away(t, "paused node ", func(i int) { h.nodes.Pause(t, i) }, func(i int) { h.nodes.Resume(t, i) }, d)
}

// allKilled kills all nodes at once.
func (h *stronghold) allKilled(t *testing.T) {
	t.Helper()
	h.fault(t, "kill -9 of all nodes", answerTimeAll, func() {
		for i := range 3 {
			h.nodes.Kill(t, i)
		}
		for i := range 3 {
			h.nodes.Start(t, i)
		}
	}, func() {})
}

// fullDisk fills the disk of node 0, a mounted tmpfs, while it leads.
func (h *stronghold) fullDisk(t *testing.T, dir string) {
	t.Helper()
	h.nodes.Lead(t, events.StreamName(0), 0)
	var free func()
	h.fault(t, "full disk of node 0", answerTime, func() { free = fill(t, dir) }, func() {
		h.goesOn(t, 50)
		require.False(t, h.nodes.Healthy(0), "seed %d: the full disk was not met", h.seed)
		free()
		// A server that has met a full disk writes nothing until it is started again.
		h.nodes.Kill(t, 0)
		h.nodes.Start(t, 0)
	})
}

// withSmallDisk is a stronghold whose node 0 has a small disk of its own.
func withSmallDisk(t *testing.T, seed uint64, perSecond float64, writers int) (h *stronghold, dir string) {
	t.Helper()
	var opts natstest.NodesOptions
	opts.Dirs[0], _ = smallDisk(t, 512)
	return newStronghold(t, seed, opts, perSecond, writers), opts.Dirs[0]
}

// TestAClusterBreaksUnderLoad breaks one thing, as the seed says; TURNLEDGER_TORTURE does
// everything, with the load that is asked for.
func TestAClusterBreaksUnderLoad(t *testing.T) {
	seed := siegeSeed(t)
	if os.Getenv("TURNLEDGER_TORTURE") == "" {
		breakOne(t, seed)
		return
	}
	t.Run("nodes", func(t *testing.T) {
		h := newStronghold(t, seed, natstest.NodesOptions{Fragile: true}, 600, 64)
		h.calm(t, 10*time.Second)
		for range 2 {
			h.cut(t)
			h.pause(t, 10*time.Second)
		}
		h.allKilled(t)
		for _, i := range pick(h.seed) {
			h.kill(t, i)
		}
		for range 10 {
			h.kill(t, h.leader(t))
		}
		h.end(t, h.nodes)
	})
	t.Run("a full disk", func(t *testing.T) {
		h, dir := withSmallDisk(t, seed, 600, 64)
		h.fullDisk(t, dir)
		h.end(t, h.nodes)
	})
}

func breakOne(t *testing.T, seed uint64) {
	t.Helper()
	const perSecond, writers = 50, 8
	if seed%5 == 4 {
		h, dir := withSmallDisk(t, seed, perSecond, writers)
		h.fullDisk(t, dir)
		h.end(t, h.nodes)
		return
	}
	h := newStronghold(t, seed, natstest.NodesOptions{Fragile: true}, perSecond, writers)
	switch seed % 5 {
	case 0:
		h.cut(t)
	case 1:
		h.pause(t, 0)
	case 2:
		h.kill(t, h.leader(t))
	case 3:
		h.allKilled(t)
	}
	h.end(t, h.nodes)
}
