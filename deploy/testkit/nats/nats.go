// Package nats starts a NATS for one test: a server in process, or a cluster of three.
package nats

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Server starts an embedded server in a temporary directory, with the durability
// gate, and stops it after the test.
func Server(t testing.TB) *embedded.Server { return ServerIn(t, t.TempDir(), embedded.Group) }

// ServerIn starts a server in a directory.
func ServerIn(t testing.TB, dir string, sync embedded.Sync) *embedded.Server {
	t.Helper()
	s := must.Get(embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: sync}))(t)
	t.Cleanup(s.Stop)
	return s
}

// Connect returns a connection that ends with the test.
func Connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc := must.Get(s.Connect())(t)
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns what a client may do with the streams of a server.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js := must.Get(jetstream.New(nc))(t)
	return js
}

// Stream returns a stream of a server.
func Stream(t testing.TB, nc *nats.Conn, name string) jetstream.Stream {
	t.Helper()
	stream := must.Get(JetStream(t, nc).Stream(t.Context(), name))(t)
	return stream
}

// Log opens a log of some partitions on a server of its own.
func Log(t testing.TB, partitions int) *jetlog.Log {
	t.Helper()
	return LogOn(t, Server(t), partitions)
}

// LogOn opens a log on a server.
func LogOn(t testing.TB, s *embedded.Server, partitions int) *jetlog.Log {
	t.Helper()
	log := must.Get(jetlog.Open(t.Context(), Connect(t, s),
		jetlog.Config{Partitions: partitions, GateDir: s.GateDir(), Reads: Connect(t, s)}))(t)
	s.StageInMemory()
	return log
}
