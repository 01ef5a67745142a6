// Package nats starts a NATS for one test: a server in process, or a cluster of three.
package nats

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
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
	return must.Get(jetstream.New(nc))(t)
}

// Stream returns a stream of a server.
func Stream(t testing.TB, nc *nats.Conn, name string) jetstream.Stream {
	t.Helper()
	return must.Get(JetStream(t, nc).Stream(t.Context(), name))(t)
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

// Run runs a function until the test ends, or until stop is called. The function must end without an error.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// Append appends facts, each by itself, waits until they are durable, and returns the last position.
func Append(t testing.TB, log *jetlog.Log, facts ...events.Fact) (at events.Position) {
	t.Helper()
	last := map[int]events.Position{} // of each partition
	for _, f := range facts {
		at = must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t).Position
		last[at.Partition] = at
	}
	for _, position := range last {
		require.NoError(t, log.Durable(t.Context(), position))
	}
	return at
}

// Fold returns a session folded from the log.
func Fold(t testing.TB, log *jetlog.Log, sessionID string, rules session.Rules) *session.State {
	t.Helper()
	state := session.New(sessionID, rules)
	for e, err := range log.Session(context.WithoutCancel(t.Context()), sessionID, 0, math.MaxUint64) {
		require.NoError(t, err)
		state.Fold(e)
	}
	return state
}

// Memory returns a folder on a tmpfs, for a server to stage batches in. Nothing of it outlives a power cut, so after
// one a server gets another.
func Memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "natstest-") //nolint:usetesting // it must be a tmpfs
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

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

// Holding returns the files below some folders, and below those that links lead to, that contain a text. Files that
// vanish meanwhile don't count, and folders named in except are left out.
func Holding(t testing.TB, text string, dirs []string, except ...string) []string {
	t.Helper()
	return HoldingEach([]string{text}, dirs, except...)[text]
}

// HoldingEach does so for several texts, and reads each file once.
func HoldingEach(texts, dirs []string, except ...string) map[string][]string {
	out := map[string][]string{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // gone meanwhile
			case e.IsDir():
				if slices.Contains(except, e.Name()) {
					return fs.SkipDir
				}
				return nil
			case e.Type() == fs.ModeSymlink:
				if to, err := filepath.EvalSymlinks(path); err == nil {
					for text, files := range HoldingEach(texts, []string{to}, except...) {
						out[text] = append(out[text], files...)
					}
				}
				return nil
			}
			raw, err := os.ReadFile(path)
			for _, text := range texts {
				if err == nil && bytes.Contains(raw, []byte(text)) {
					out[text] = append(out[text], path)
				}
			}
			return nil
		})
	}
	return out
}

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

// program builds nats-server from the module that go.mod names.
func program(t testing.TB) string {
	t.Helper()
	built := &gobuild.Program{Name: "nats-server", Package: "github.com/nats-io/nats-server/v2"}
	t.Cleanup(built.Remove)
	return must.Get(built.Path())(t)
}

// aloneConfig is the configuration of one node, as in deploy/nats.conf.
const aloneConfig = `listen: "%s"
max_payload: 8MB
jetstream { store_dir: "%s", sync_interval: always }
`

// Alone starts a nats-server process on the data of a server that has stopped, and connects to it.
func Alone(t testing.TB, dir string) *nats.Conn {
	t.Helper()
	address := ports.FreeAddress(t)
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, aloneConfig, address, dir), 0o600))
	cmd := exec.Command(program(t), "-c", config)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var nc *nats.Conn
	hang.Until(t, func() (up bool) {
		var err error
		nc, err = nats.Connect("nats://" + address)
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}

// BegunAnew is a server process that restarts JetStream on command.
type BegunAnew struct {
	Conn *nats.Conn
	in   io.Writer
	out  *bufio.Reader
}

// StartBegunAnew starts such a server on an empty store, and connects to it.
func StartBegunAnew(t testing.TB) *BegunAnew {
	t.Helper()
	built := &gobuild.Program{
		Name: "begunanew", Package: "github.com/turnledger/turnledger/deploy/testkit/nats/begunanew",
	}
	t.Cleanup(built.Remove)
	cmd := exec.Command(must.Get(built.Path())(t), t.TempDir())
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &BegunAnew{in: in, out: bufio.NewReader(out)}
	s.Conn = must.Get(nats.Connect(s.line(t)))(t)
	t.Cleanup(s.Conn.Close)
	return s
}

// Begin stops JetStream, waits for the duration away, and starts it again.
func (s *BegunAnew) Begin(t testing.TB, away time.Duration) {
	t.Helper()
	must.Get(fmt.Fprintln(s.in, away.Milliseconds()))(t)
	require.Equal(t, "begun", s.line(t))
}

func (s *BegunAnew) line(t testing.TB) string {
	t.Helper()
	return strings.TrimSpace(must.Get(s.out.ReadString('\n'))(t))
}
