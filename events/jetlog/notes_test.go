package jetlog_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// stalling is a dialer of connections from which nothing comes while they are held.
type stalling struct{ held sync.RWMutex }

type stalled struct {
	net.Conn
	held *sync.RWMutex
}

func (s *stalling) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return stalled{conn, &s.held}, err
}

func (s stalled) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.held.RLock()
	defer s.held.RUnlock()
	return n, err
}

// A process that starts while the server is busy waits for it.
func TestNotesOfASlowServerAreWaitedFor(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: embedded.Always, Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	wire := &stalling{}
	nc, err := nats.Connect(s.URL(), nats.SetCustomDialer(wire))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{})
	require.NoError(t, err)
	wire.held.Lock()
	time.AfterFunc(6*time.Second, wire.held.Unlock) // JetStream's client gives a question up after 5 s
	_, err = log.Notes(t.Context())
	require.NoError(t, err)
}
