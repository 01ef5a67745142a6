package nats

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// Nodes is a cluster of three nats-server processes, each syncing every write, as in deploy/nats.conf. They can be
// killed and started again, paused, and cut off from each other. Their clients stay connected when nodes are cut off.
type Nodes struct {
	program string
	nodes   [size]*node
	links   wires
}

type node struct {
	name, client, monitor, config string
	// through and env are what NodesOptions.Through returned.
	through, env []string
	cmd          *exec.Cmd
	log          *os.File
}

// NodesOptions are the options of a cluster.
type NodesOptions struct {
	// Fragile: the wires between the nodes can be cut.
	Fragile bool
	// Dirs are the folders of the nodes' data; StartNodes makes one for each that is empty.
	Dirs [size]string
	// Through returns a command that the command of a node stands behind, and what is in its environment.
	Through func(dir, url string) (command, env []string)
	// Config is added to the configuration of each node.
	Config string
}

// nodeConfig is deploy/nats.conf without credentials. A client learns of no nodes but those in its URL.
const nodeConfig = `server_name: %s
listen: "%s"
http: "%s"
max_payload: 8MB
jetstream { store_dir: "%s", sync_interval: always }
cluster { name: turnledger, listen: "%s", no_advertise: true, %s routes: [%s] }
`

// StartNodes starts a cluster of three and waits until it has a leader.
func StartNodes(t testing.TB, opts NodesOptions) *Nodes {
	t.Helper()
	n := &Nodes{program: program(t)}
	host := loopback()
	all := freePorts(t, host, 3*size)
	ports, clients, monitors := all[:size], all[size:2*size], all[2*size:]
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	dir := t.TempDir()
	for i := range n.nodes {
		var routes []string
		more := ""
		for j, port := range ports {
			if i == j {
				continue
			}
			address := at(port)
			if opts.Fragile {
				l := newLink(t, i, j, address)
				n.links = append(n.links, l)
				address = l.address()
				// The nodes must not learn addresses by gossip that lead past the wires.
				more = `advertise: "127.0.0.1:1", pool_size: -1,`
			}
			routes = append(routes, `"nats://`+address+`"`)
		}
		x := &node{name: fmt.Sprint("n", i), client: at(clients[i]), monitor: at(monitors[i]),
			config: filepath.Join(dir, fmt.Sprintf("n%d.conf", i))}
		if opts.Dirs[i] == "" {
			opts.Dirs[i] = filepath.Join(dir, x.name)
		}
		if opts.Through != nil {
			require.NoError(t, os.MkdirAll(opts.Dirs[i], 0o700))
			x.through, x.env = opts.Through(opts.Dirs[i], "nats://"+x.client)
		}
		text := fmt.Sprintf(nodeConfig, x.name, x.client, x.monitor, opts.Dirs[i], at(ports[i]), more,
			strings.Join(routes, ", ")) + opts.Config
		require.NoError(t, os.WriteFile(x.config, []byte(text), 0o600))
		x.log = must.Get(os.Create(filepath.Join(dir, x.name+".log")))(t)
		n.nodes[i] = x
	}
	t.Cleanup(func() { n.end(t) })
	for i := range n.nodes {
		n.Start(t, i)
	}
	n.Ready(t)
	return n
}

// end kills the nodes. If the test failed, it prints the end of each node's log.
func (n *Nodes) end(t testing.TB) {
	for _, x := range n.nodes {
		if x.cmd != nil {
			_ = x.kill()
			_ = x.cmd.Wait()
		}
		_ = x.log.Close()
		if raw, err := os.ReadFile(x.log.Name()); err == nil && t.Failed() {
			t.Logf("%s: …%s", x.name, raw[max(0, len(raw)-4000):])
		}
	}
}

// kill kills a node, and what it was started through.
func (x *node) kill() error { return syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL) }

// Stop asks a node to stop, and waits until it has ended.
func (n *Nodes) Stop(t testing.TB, i int) error {
	t.Helper()
	n.signal(t, i, syscall.SIGTERM)
	defer func() { n.nodes[i].cmd = nil }()
	return n.nodes[i].cmd.Wait()
}

// Start starts a node that does not run.
func (n *Nodes) Start(t testing.TB, i int) {
	t.Helper()
	x := n.nodes[i]
	command := append(slices.Clone(x.through), n.program, "-c", x.config)
	x.cmd = exec.Command(command[0], command[1:]...)
	x.cmd.Env = append(os.Environ(), x.env...)
	x.cmd.Stdout, x.cmd.Stderr = x.log, x.log
	// ends with the test process, whatever ends that
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, x.cmd.Start())
}

// Kill kills a node with SIGKILL.
func (n *Nodes) Kill(t testing.TB, i int) {
	t.Helper()
	require.NoError(t, n.nodes[i].kill())
	_ = n.nodes[i].cmd.Wait()
	n.nodes[i].cmd = nil
}

// Pause freezes a node; Resume lets it go on.
func (n *Nodes) Pause(t testing.TB, i int) { n.signal(t, i, syscall.SIGSTOP) }

// Resume lets a paused node go on.
func (n *Nodes) Resume(t testing.TB, i int) { n.signal(t, i, syscall.SIGCONT) }

func (n *Nodes) signal(t testing.TB, i int, s os.Signal) {
	t.Helper()
	require.NoError(t, n.nodes[i].cmd.Process.Signal(s))
}

// Isolate cuts a node off from the others until Mend.
func (n *Nodes) Isolate(t testing.TB, i int) { n.links.isolate(t, i) }

// Mend mends all wires.
func (n *Nodes) Mend() { n.links.mend() }

// URL returns the addresses of the nodes among, or of all.
func (n *Nodes) URL(among ...int) string {
	if len(among) == 0 {
		among = []int{0, 1, 2}
	}
	var out []string
	for _, i := range among {
		out = append(out, "nats://"+n.nodes[i].client)
	}
	return strings.Join(out, ",")
}

// Connect returns a connection to the nodes among, or to all, that ends with the test.
func (n *Nodes) Connect(t testing.TB, among ...int) *nats.Conn {
	t.Helper()
	nc := n.connect(t, among...)
	t.Cleanup(nc.Close)
	return nc
}

func (n *Nodes) connect(t testing.TB, among ...int) *nats.Conn {
	t.Helper()
	nc := must.Get(nats.Connect(n.URL(among...), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.Timeout(time.Second), nats.PingInterval(time.Second), nats.RetryOnFailedConnect(true)))(t)
	return nc
}

// Leader waits until one of the nodes among knows a stream's leader, and returns the leader's index.
func (n *Nodes) Leader(t testing.TB, stream string, among ...int) (leader int) {
	t.Helper()
	nc := n.connect(t, among...)
	defer nc.Close()
	hang.Until(t, func() bool { leader = n.leader(nc, stream); return leader >= 0 }, "%s has no leader", stream)
	return leader
}

// leader returns the index of the stream's leader, or -1 if no leader is known.
func (n *Nodes) leader(nc *nats.Conn, stream string) int {
	var v struct{ Cluster struct{ Leader string } }
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
	if err != nil || json.Unmarshal(m.Data, &v) != nil {
		return -1
	}
	for i, x := range n.nodes {
		if x.name == v.Cluster.Leader {
			return i
		}
	}
	return -1
}

// Lead makes a node the leader of a stream.
func (n *Nodes) Lead(t testing.TB, stream string, i int) {
	t.Helper()
	nc := n.connect(t)
	defer nc.Close()
	ask := fmt.Appendf(nil, `{"placement": {"preferred": %q}}`, n.nodes[i].name)
	hang.Until(t, func() bool {
		if n.leader(nc, stream) == i {
			return true
		}
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, ask, 2*time.Second) // checked above
		// Another request would break the election off.
		<-time.After(200 * time.Millisecond)
		return false
	}, "node %d does not lead %s", i, stream)
}

// Ready waits until all nodes are healthy: each knows its leader, and has caught up.
func (n *Nodes) Ready(t testing.TB) {
	t.Helper()
	hang.Until(t, func() bool {
		for i := range n.nodes {
			if !n.Healthy(i) {
				return false
			}
		}
		return true
	}, "the cluster is not ready")
}

// Healthy reports whether a node calls itself healthy.
func (n *Nodes) Healthy(i int) bool {
	var v struct{ Status string }
	return n.ask(i, "/healthz", &v) == nil && v.Status == "ok"
}

// stored is the state of a stream on one node.
type stored struct {
	Messages, Bytes uint64
	FirstSeq        uint64 `json:"first_seq"`
	LastSeq         uint64 `json:"last_seq"`
}

// Agree waits until all nodes have the same state of every stream with three replicas.
func (n *Nodes) Agree(t testing.TB) {
	t.Helper()
	var told [size]string
	hang.Until(t, func() bool {
		for i := range n.nodes {
			held, err := n.holds(i)
			if err != nil {
				return false
			}
			raw, err := json.Marshal(held)
			told[i] = string(raw)
			if err != nil || len(held) == 0 || told[i] != told[0] {
				return false
			}
		}
		return true
	}, "the nodes hold %v", &told)
}

func (n *Nodes) holds(i int) (map[string]stored, error) {
	var v struct {
		Accounts []struct {
			Streams []struct {
				Name   string
				State  stored
				Config struct {
					Replicas int `json:"num_replicas"`
				}
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := n.ask(i, "/jsz?accounts=true&streams=true&config=true", &v); err != nil {
		return nil, err
	}
	out := map[string]stored{}
	for _, a := range v.Accounts {
		for _, s := range a.Streams {
			if s.Config.Replicas == size {
				out[s.Name] = s.State
			}
		}
	}
	return out, nil
}

// ask reads a path of a node's monitoring.
func (n *Nodes) ask(i int, path string, out any) error {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + n.nodes[i].monitor + path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(out)
}
