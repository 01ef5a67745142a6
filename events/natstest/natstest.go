// Package natstest gives a test its own NATS: one server in process, or a cluster
// of three.
package natstest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Server starts an embedded server in a temporary directory, with the durability
// gate, and stops it after the test.
func Server(t testing.TB) *embedded.Server { return ServerIn(t, t.TempDir(), embedded.Group) }

// ServerIn starts a server in a directory.
func ServerIn(t testing.TB, dir string, sync embedded.Sync) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: sync})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// Connect gives a connection that ends with the test.
func Connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// Log opens a log of some partitions on a server of its own.
func Log(t testing.TB, partitions int) *jetlog.Log {
	t.Helper()
	return LogOn(t, Server(t), partitions)
}

// LogOn opens a log on a server.
func LogOn(t testing.TB, s *embedded.Server, partitions int) *jetlog.Log {
	t.Helper()
	log, err := jetlog.Open(t.Context(), Connect(t, s), jetlog.Config{Partitions: partitions, GateDir: s.GateDir()})
	require.NoError(t, err)
	return log
}

// Cluster is three servers in this process, each syncing every write.
type Cluster struct{ Servers []*server.Server }

// StartCluster starts a cluster of three and waits until it has a leader.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	ports := freePorts(t, 3)
	routes := ""
	for i, p := range ports {
		if i > 0 {
			routes += ","
		}
		routes += fmt.Sprintf("nats://127.0.0.1:%d", p)
	}
	for i, p := range ports {
		ns, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, MaxPayload: embedded.MaxPayload,
			Cluster: server.ClusterOpts{Name: "turnledger", Host: "127.0.0.1", Port: p},
			Routes:  server.RoutesFromStr(routes),
		})
		require.NoError(t, err)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		c.Servers = append(c.Servers, ns)
	}
	c.waitForLeader(t)
	return c
}

func (c *Cluster) waitForLeader(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		led, current := false, 0
		for _, s := range c.Servers {
			led = led || s.JetStreamIsLeader()
			if s.JetStreamIsCurrent() {
				current++
			}
		}
		return led && current == len(c.Servers)
	}, 30*time.Second, 20*time.Millisecond, "the cluster has no meta leader")
}

// Connect gives a connection to the cluster that ends with the test.
func (c *Cluster) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	urls := ""
	for i, s := range c.Servers {
		if i > 0 {
			urls += ","
		}
		urls += s.ClientURL()
	}
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// Log opens a log of three replicas on the cluster.
func (c *Cluster) Log(t testing.TB, partitions int) *jetlog.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	log, err := jetlog.Open(ctx, c.Connect(t), jetlog.Config{Partitions: partitions, Replicas: 3})
	require.NoError(t, err)
	return log
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}
