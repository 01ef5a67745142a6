package logtest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Restarting is a server on one address that can be stopped and started under load.
type Restarting struct {
	t      *testing.T
	dir    string
	listen string
	server *embedded.Server
}

// NewRestarting starts the server, which stops with the test.
func NewRestarting(t *testing.T) *Restarting {
	t.Helper()
	r := &Restarting{t: t, dir: t.TempDir(), listen: ports.FreeAddress(t)}
	r.start()
	t.Cleanup(func() { r.server.Stop() })
	return r
}

func (r *Restarting) start() {
	var err error
	r.server, err = embedded.Start(r.t.Context(), embedded.Config{Dir: r.dir, Sync: embedded.Group, Listen: r.listen})
	require.NoError(r.t, err)
}

// Restart stops the server and starts it again.
func (r *Restarting) Restart() {
	r.server.Stop()
	r.start()
}

// Log opens a log whose connection reconnects.
func (r *Restarting) Log() *jetlog.Log {
	nc := must.Get(nats.Connect(r.listen, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond)))(r.t)
	r.t.Cleanup(nc.Close)
	log := must.Get(jetlog.Open(r.t.Context(), nc, jetlog.Config{GateDir: r.dir, Deadline: time.Second}))(r.t)
	return log
}
