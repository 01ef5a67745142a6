package nats

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Disk is what a server keeps its streams on, which comes and goes at one address. The disk can be put back as it was.
type Disk struct {
	t             testing.TB
	address       string
	dir, snapshot string
}

// NewDisk returns an empty disk.
func NewDisk(t testing.TB) *Disk {
	t.Helper()
	in := t.TempDir()
	return &Disk{
		t: t, address: ports.FreeAddress(t), dir: filepath.Join(in, "log"), snapshot: filepath.Join(in, "snapshot"),
	}
}

// Serve runs a server that those of Outside reach, until do returns.
func (d *Disk) Serve(do func(nc *nats.Conn, log *jetlog.Log)) {
	d.t.Helper()
	d.serve(d.address, do)
}

// Apart runs a server that nobody else reaches, until do returns.
func (d *Disk) Apart(do func(nc *nats.Conn, log *jetlog.Log)) {
	d.t.Helper()
	d.serve("", do)
}

func (d *Disk) serve(listen string, do func(nc *nats.Conn, log *jetlog.Log)) {
	d.t.Helper()
	s, err := embedded.Start(d.t.Context(), embedded.Config{Dir: d.dir, Sync: embedded.Always, Listen: listen})
	require.NoError(d.t, err)
	defer s.Stop()
	nc := must.Get(s.Connect())(d.t)
	defer nc.Close()
	do(nc, Outside(d.t, nc))
}

// Outside opens a log of its own that stays while the server comes and goes.
func (d *Disk) Outside() *jetlog.Log {
	d.t.Helper()
	nc := must.Get(nats.Connect(d.address, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond)))(d.t)
	d.t.Cleanup(nc.Close)
	return Outside(d.t, nc)
}

// Outside opens the log of a server that belongs to another process. The server may still be removing the files of a
// stream that was deleted a moment ago, and then can't make it anew.
func Outside(t testing.TB, nc *nats.Conn) (log *jetlog.Log) {
	t.Helper()
	var err error
	hang.Until(t, func() bool {
		log, err = jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		return !errors.Is(err, jetlog.ErrUnavailable)
	})
	require.NoError(t, err)
	return log
}

// Copy notes what the disk holds. No server may run.
func (d *Disk) Copy() {
	d.t.Helper()
	require.NoError(d.t, os.CopyFS(d.snapshot, os.DirFS(d.dir)))
}

// Empty loses what the disk holds.
func (d *Disk) Empty() {
	d.t.Helper()
	require.NoError(d.t, os.RemoveAll(d.dir))
}

// PutBack brings the disk back to its copy.
func (d *Disk) PutBack() {
	d.t.Helper()
	d.Empty()
	require.NoError(d.t, os.CopyFS(d.dir, os.DirFS(d.snapshot)))
}
