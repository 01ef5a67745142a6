package nats

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Cluster is three servers in this process, each syncing every write.
type Cluster struct {
	Servers []*server.Server
	// links are the wires between the servers of a fragile cluster.
	links wires
}

const size = 3

// StartCluster starts a cluster of three and waits until it has a leader.
func StartCluster(t testing.TB) *Cluster { return start(t, false) }

// StartFragileCluster starts a cluster whose wires between the servers can be cut: Isolate and Kill need it.
func StartFragileCluster(t testing.TB) *Cluster { return start(t, true) }

func start(t testing.TB, fragile bool) *Cluster {
	t.Helper()
	c := &Cluster{}
	// A loopback address that no other test uses keeps the ports from being taken between their choice and their use.
	host := loopback()
	all := freePorts(t, host, 2*size)
	ports, clients := all[:size], all[size:]
	for i, port := range ports {
		opts := &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: host, Port: clients[i], NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, MaxPayload: embedded.MaxPayload,
			Cluster: server.ClusterOpts{Name: "turnledger", Host: host, Port: port},
		}
		routes := ""
		for j, other := range ports {
			if i == j {
				continue
			}
			address := net.JoinHostPort(host, strconv.Itoa(other))
			if fragile {
				address = c.wire(t, i, j, address)
			}
			routes += ",nats://" + address
		}
		if fragile {
			// The servers must not learn addresses by gossip that lead past the wires.
			opts.Cluster.Advertise, opts.Cluster.PoolSize = "127.0.0.1:1", -1
		}
		opts.Routes = server.RoutesFromStr(routes[1:])
		ns := must.Get(server.NewServer(opts))(t)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		c.Servers = append(c.Servers, ns)
	}
	t.Cleanup(func() { c.links.hangUp() }) // before the servers end, which would wait for writes to wires that are cut
	c.waitForLeader(t)
	return c
}

func (c *Cluster) wire(t testing.TB, from, to int, address string) string {
	t.Helper()
	l := newLink(t, from, to, address)
	c.links = append(c.links, l)
	return l.address()
}

func (c *Cluster) waitForLeader(t testing.TB) {
	t.Helper()
	hang.Until(t, func() bool {
		led, current := false, 0
		for _, s := range c.Servers {
			led = led || s.JetStreamIsLeader()
			if s.JetStreamIsCurrent() {
				current++
			}
		}
		return led && current == len(c.Servers)
	}, "the cluster has no meta leader")
}

// Leader waits until one of some servers leads a stream, and returns that server's index.
func (c *Cluster) Leader(t testing.TB, stream string, among ...int) int {
	t.Helper()
	leader := -1
	hang.Until(t, func() bool {
		for _, i := range among {
			if c.Servers[i].JetStreamIsStreamLeader("$G", stream) {
				leader = i
			}
		}
		return leader >= 0
	}, "stream %s has no leader", stream)
	return leader
}

// Isolate cuts a server off from the others. Its clients keep their connections.
func (c *Cluster) Isolate(t testing.TB, i int) { c.links.isolate(t, i) }

// Delay delays all traffic between the servers from now on. It needs a fragile cluster.
func (c *Cluster) Delay(d time.Duration) {
	for _, l := range c.links {
		l.delay.Store(int64(d))
	}
}

// Kill ends a server that can't tell the others.
func (c *Cluster) Kill(t testing.TB, i int) {
	t.Helper()
	c.Isolate(t, i)
	c.links.of(i).hangUp() // or it would wait for its writes to them
	c.Servers[i].Shutdown()
	c.Servers[i].WaitForShutdown()
}

// Connect returns a connection to the cluster that ends with the test.
func (c *Cluster) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	nc := must.Get(nats.Connect(strings.Join(c.URLs(), ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond)))(t)
	t.Cleanup(nc.Close)
	return nc
}

// URLs returns the servers' addresses.
func (c *Cluster) URLs() (out []string) {
	for _, s := range c.Servers {
		out = append(out, s.ClientURL())
	}
	return out
}

// ConnectTo returns a connection to one server and no other.
func (c *Cluster) ConnectTo(t testing.TB, i int) *nats.Conn {
	t.Helper()
	nc := must.Get(nats.Connect("", nats.InProcessServer(c.Servers[i]), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond)))(t)
	t.Cleanup(nc.Close)
	return nc
}

// Log opens a log of three replicas on the cluster.
func (c *Cluster) Log(t testing.TB, partitions int) *jetlog.Log {
	t.Helper()
	return c.LogOn(t, c.Connect(t), partitions)
}

// LogOn opens a log of three replicas on a connection to the cluster.
func (c *Cluster) LogOn(t testing.TB, nc *nats.Conn, partitions int) *jetlog.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	return must.Get(jetlog.Open(ctx, nc, jetlog.Config{Partitions: partitions, Replicas: size}))(t)
}

// loopback returns an address of this machine that no other test uses. On Linux all of 127/8 is there.
func loopback() string {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "127.0.0.1"
	}
	_ = l.Close()
	return host
}

// freePorts returns n different free ports. Another call may return the same ports.
func freePorts(t testing.TB, host string, n int) []int {
	t.Helper()
	var out []int
	for range n {
		l := must.Get(net.Listen("tcp", host+":0"))(t)
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// link is a wire from one server to another that can be cut and mended. A cut wire is silent, like a network that lost
// a switch: no connection is closed, and nothing arrives. Data on its way arrives when the wire is mended, if anybody
// still listens.
type link struct {
	from, to int
	listener net.Listener
	target   string
	over     chan struct{}
	all      sync.WaitGroup
	// delay of all traffic on the wire, in nanoseconds.
	delay atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	// whole is closed while the wire is not cut.
	whole chan struct{}
	isCut bool
}

func newLink(t testing.TB, from, to int, target string) *link {
	t.Helper()
	l := &link{from: from, to: to, target: target, over: make(chan struct{}), whole: make(chan struct{})}
	close(l.whole)
	l.listener = must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isCut {
		l.isCut, l.whole = true, make(chan struct{})
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		l.isCut = false
		close(l.whole)
	}
}

// hangUp closes the wire's connections, as the end of a process at one of its ends does.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// carries waits until the wire is whole. It returns false if the link was closed first.
func (l *link) carries() bool {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-l.over:
		return false
	}
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !l.hold(in, out) {
			return
		}
		l.all.Go(func() { l.carry(out, in) })
		l.all.Go(func() { l.carry(in, out) })
	}
}

func (l *link) hold(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	default:
	}
	l.conns = append(l.conns, conns...)
	return true
}

func (l *link) carry(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if delay := l.delay.Load(); delay > 0 {
			<-time.After(time.Duration(delay))
		}
		if !l.carries() {
			return
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	close(l.over)
	l.mu.Unlock()
	l.hangUp()
	l.all.Wait()
}

// wires are the links between the servers of a cluster.
type wires []*link

// isolate cuts a server off from the others.
func (w wires) isolate(t testing.TB, i int) {
	t.Helper()
	require.NotEmpty(t, w, "the cluster was not started as a fragile one")
	for _, l := range w.of(i) {
		l.cut()
	}
}

// of returns the wires that end at a server.
func (w wires) of(i int) (out wires) {
	for _, l := range w {
		if l.from == i || l.to == i {
			out = append(out, l)
		}
	}
	return out
}

func (w wires) hangUp() {
	for _, l := range w {
		l.hangUp()
	}
}

// mend mends all wires.
func (w wires) mend() {
	for _, l := range w {
		l.mend()
	}
}
