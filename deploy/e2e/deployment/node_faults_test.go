//go:build linux

package deployment_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// loadedCluster is a cluster with two servers on it, and their load.
type loadedCluster struct {
	*turnLoad
	nodes *natstest.Nodes
	rng   *rand.Rand
	env   []string
}

// answerTimeAll is how long after all nodes were killed at once every write is answered.
const answerTimeAll = 30 * time.Second

// answerTime returns how long after a majority is back every write is answered. An election takes up to 9 s, and as
// long again if it has no winner: the long form, which has the machine to itself, measures that, and the short form,
// which shares a busy machine with other tests, gives it the time of a few.
func answerTime() time.Duration {
	if stack.Long() {
		return 10 * time.Second
	}
	return 30 * time.Second
}

func newCluster(t *testing.T, seed uint64, opts natstest.NodesOptions, perSecond float64, writers int) *loadedCluster {
	t.Helper()
	h := &loadedCluster{nodes: natstest.StartNodes(t, opts), rng: rand.New(rand.NewPCG(seed, 1))}
	h.env = []string{
		"TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3", "TURNLEDGER_PARTITIONS=" + strconv.Itoa(partitions),
		"TURNLEDGER_REDIS_URL=" + redistest.Start(t).URL(), "TURNLEDGER_POSTGRES_URL=" + pg.URL(t),
	}
	var servers []*stack.Process
	for range 2 {
		servers = append(servers, stack.Start(t, append([]string{"TURNLEDGER_NATS_URL=" + h.nodes.URL()}, h.env...),
			"serve"))
	}
	t.Cleanup(func() {
		for _, p := range servers {
			if t.Failed() {
				said := p.Log.String()
				t.Logf("%s: …%s", p.URL, said[max(0, len(said)-6000):])
			}
		}
	})
	h.turnLoad = startLoad(t, seed, perSecond, writers, servers...)
	h.waitAnswers(t, answerTimeAll, servers...)
	return h
}

// measureUnbroken logs how many turns there are while nothing is broken.
func (h *loadedCluster) measureUnbroken(t *testing.T, d time.Duration) {
	t.Helper()
	before := h.turns.Load()
	<-time.After(d)
	t.Logf("unbroken: %.0f turns/s", float64(h.turns.Load()-before)/d.Seconds())
}

// injectFault breaks something, requires that writes are answered again in time, and mends it.
func (h *loadedCluster) injectFault(t *testing.T, name string, within time.Duration, breaks, mends func()) {
	t.Helper()
	before, began := h.turns.Load(), time.Now()
	breaks()
	took := h.waitAnswers(t, within, h.servers...)
	h.waitTurns(t, 20)
	require.False(t, t.Failed())
	mends()
	h.nodes.Ready(t)
	h.waitTurns(t, 20)
	require.False(t, t.Failed())
	t.Logf("%s: every partition answered after %s; %d turns in %s", name, took.Round(10*time.Millisecond),
		h.turns.Load()-before, time.Since(began).Round(time.Second))
}

func (h *loadedCluster) killNode(t *testing.T, i int) {
	t.Helper()
	h.injectFault(t, "kill -9 of node "+strconv.Itoa(i), answerTime(), func() { h.nodes.Kill(t, i) },
		func() { h.nodes.Start(t, i) })
}

// leader returns the node that leads some partition.
func (h *loadedCluster) leader(t *testing.T) int {
	t.Helper()
	return h.nodes.Leader(t, events.StreamName(h.rng.IntN(partitions)))
}

// startSingleNodeServer starts a server that reaches one node and no other.
func (h *loadedCluster) startSingleNodeServer(t *testing.T, i int) *stack.Process {
	t.Helper()
	p := stack.Start(t, append([]string{"TURNLEDGER_NATS_URL=" + h.nodes.URL(i)}, h.env...), "serve",
		"--roles", "api,context")
	p.Client = h.client
	return p
}

// readContinuously reads the newest sessions at a server until end is called; answered returns how many
// readings were answered since its last call. Nothing that is shown is ever older than what was
// acknowledged before.
func (h *loadedCluster) readContinuously(t *testing.T, p *stack.Process) (answered func() int, end func()) {
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
				ok, err := h.readSession(t.Context(), p, h.anySession(rng), rng.IntN(2))
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

// withoutLeader separates a leader from the other nodes while a server that reaches only that node is read. Once
// another node leads, that server answers no read; when it answers again it is not behind.
func (h *loadedCluster) withoutLeader(t *testing.T, name string, takes, gives func(i int), atLeast time.Duration) {
	t.Helper()
	i := h.leader(t)
	p := h.startSingleNodeServer(t, i)
	answered, end := h.readContinuously(t, p)
	hang.Until(t, func() bool { return answered() > 0 },
		"the server of one node does not answer")
	h.injectFault(t, name+strconv.Itoa(i), answerTime(), func() { takes(i) }, func() {
		answered()
		h.waitTurns(t, 20)
		require.Zero(t, answered(), "seed %d: a server that reaches node %d alone answers", h.seed, i)
		status, out, err := call(t.Context(), p, stack.SessionPath(h.anySession(h.rng).id), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status, "%v", out)
		<-time.After(atLeast)
		gives(i)
	})
	hang.Until(t, func() bool { return answered() > 0 },
		"the server of one node does not answer again")
	end()
	p.Kill(t)
}

func (h *loadedCluster) isolateLeader(t *testing.T) {
	t.Helper()
	h.withoutLeader(t, "cut off node ", func(i int) { h.nodes.Isolate(t, i) }, func(int) { h.nodes.Mend() }, 0)
}

func (h *loadedCluster) pauseLeader(t *testing.T, d time.Duration) {
	t.Helper()
	h.withoutLeader(t, "paused node ", func(i int) { h.nodes.Pause(t, i) }, func(i int) { h.nodes.Resume(t, i) }, d)
}

// killAllNodes kills all nodes at once.
func (h *loadedCluster) killAllNodes(t *testing.T) {
	t.Helper()
	h.injectFault(t, "kill -9 of all nodes", answerTimeAll, func() {
		for i := range 3 {
			h.nodes.Kill(t, i)
		}
		for i := range 3 {
			h.nodes.Start(t, i)
		}
	}, func() {})
}

// fillLeaderDisk fills the disk of node 0, a mounted tmpfs, while it leads.
func (h *loadedCluster) fillLeaderDisk(t *testing.T, dir string) {
	t.Helper()
	h.nodes.Lead(t, events.StreamName(0), 0)
	var free func()
	h.injectFault(t, "full disk of node 0", answerTime(), func() { free = stack.FillDisk(t, dir) }, func() {
		h.waitTurns(t, 50)
		require.False(t, h.nodes.Healthy(0), "seed %d: the full disk was not met", h.seed)
		free()
		// A server that has met a full disk writes nothing until it is started again.
		h.nodes.Kill(t, 0)
		h.nodes.Start(t, 0)
	})
}

// newClusterWithSmallDisk returns a cluster whose node 0 has a small disk of its own.
func newClusterWithSmallDisk(t *testing.T, seed uint64, perSecond float64, writers int) (h *loadedCluster, dir string) {
	t.Helper()
	var opts natstest.NodesOptions
	opts.Dirs[0], _ = stack.MountSmallDisk(t, 512)
	return newCluster(t, seed, opts, perSecond, writers), opts.Dirs[0]
}

// TestAClusterBreaksUnderLoad breaks one thing, as the seed says; TURNLEDGER_TORTURE does
// everything, with the load that is asked for.
func TestAClusterBreaksUnderLoad(t *testing.T) {
	seed := stack.Seed(t)
	if !stack.Long() {
		injectOneFault(t, seed)
		return
	}
	t.Run("nodes", func(t *testing.T) {
		h := newCluster(t, seed, natstest.NodesOptions{Fragile: true}, 600, 64)
		h.measureUnbroken(t, 10*time.Second)
		for range 2 {
			h.isolateLeader(t)
			h.pauseLeader(t, 10*time.Second)
		}
		h.killAllNodes(t)
		for _, i := range nodeOrder(h.seed) {
			h.killNode(t, i)
		}
		for range 10 {
			h.killNode(t, h.leader(t))
		}
		h.finish(t, h.nodes)
	})
	t.Run("a full disk", func(t *testing.T) {
		h, dir := newClusterWithSmallDisk(t, seed, 600, 64)
		h.fillLeaderDisk(t, dir)
		h.finish(t, h.nodes)
	})
}

func injectOneFault(t *testing.T, seed uint64) {
	t.Helper()
	const perSecond, writers = 50, 8
	if seed%5 == 4 {
		h, dir := newClusterWithSmallDisk(t, seed, perSecond, writers)
		h.fillLeaderDisk(t, dir)
		h.finish(t, h.nodes)
		return
	}
	h := newCluster(t, seed, natstest.NodesOptions{Fragile: true}, perSecond, writers)
	switch seed % 5 {
	case 0:
		h.isolateLeader(t)
	case 1:
		h.pauseLeader(t, 0)
	case 2:
		h.killNode(t, h.leader(t))
	case 3:
		h.killAllNodes(t)
	}
	h.finish(t, h.nodes)
}
