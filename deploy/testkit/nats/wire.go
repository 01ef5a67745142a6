package nats

import (
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Wire is the network of a connection. While it is locked, nothing comes through.
type Wire struct{ sync.RWMutex }

// Dial implements nats.CustomDialer.
func (w *Wire) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return wired{conn, w}, err
}

type wired struct {
	net.Conn
	wire *Wire
}

func (w wired) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.wire.RLock()
	defer w.wire.RUnlock()
	return n, err
}

// Wired starts a server that syncs every write, and connects to it over a wire.
func Wired(t testing.TB) (*nats.Conn, *Wire) {
	t.Helper()
	s := must.Get(embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: embedded.Always,
		Listen: "127.0.0.1:0"}))(t)
	t.Cleanup(s.Stop)
	w := &Wire{}
	nc := must.Get(nats.Connect(s.URL(), nats.SetCustomDialer(w)))(t)
	t.Cleanup(nc.Close)
	return nc, w
}
