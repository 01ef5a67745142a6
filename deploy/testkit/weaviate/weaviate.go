// Package weaviate gives a test a Weaviate of its own: a real server in a folder of its own, started in a few
// seconds, stopped when the test ends. `make e2e` builds it once a machine from its Go module, which folder server
// pins; so does the first test that needs it. A build that fails is a failure, and nothing is skipped.
//
// Weaviate can't be told to keep gRPC and the cluster's data port on loopback. So it runs in a network of its own where
// the system grants user namespaces, as Linux mostly does, and only REST and gRPC are reached from outside, on
// loopback. Elsewhere (macOS, some containers) those two ports listen on all interfaces; both ask for a password that
// is drawn for each server.
package weaviate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// Server is a Weaviate that belongs to one test. If a method can't do its work, it fails the test; so call the methods
// from the test's own goroutine.
type Server struct {
	t       testing.TB
	program string
	dir     string
	key     string
	auto    bool
	more    []string
	ports   []string
	ended   chan struct{}
	process *os.Process
}

// Start runs an empty Weaviate for t.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, rand.Text())
}

// StartIn runs a Weaviate for t in a folder.
func StartIn(t testing.TB, dir string) *Server {
	t.Helper()
	return start(t, dir, rand.Text())
}

// StartWith runs an empty Weaviate for t that has a key, and further settings (NAME=value), which count where they
// differ from those of tests.
func StartWith(t testing.TB, key string, settings ...string) *Server {
	t.Helper()
	return start(t, t.TempDir(), key, settings...)
}

func start(t testing.TB, dir, key string, settings ...string) *Server {
	t.Helper()
	program := must.Get(Program(t.Context(), os.Stderr))(t)
	s := &Server{t: t, program: program, dir: dir, key: key, ports: freePorts(t, 6), more: settings}
	t.Cleanup(s.Kill)
	s.run()
	return s
}

// Config returns how a client reaches the server. It stays the same over restarts.
func (s *Server) Config() weaviate.Config {
	return weaviate.Config{URL: s.URL(), GRPC: "127.0.0.1:" + s.ports[1], Key: s.key}
}

// URL of the REST API.
func (s *Server) URL() string { return "http://127.0.0.1:" + s.ports[0] }

// GRPC returns host:port of the gRPC API, and Key the key of both.
func (s *Server) GRPC() string { return "127.0.0.1:" + s.ports[1] }

// Key of the server.
func (s *Server) Key() string { return s.key }

// Dir returns the folder with all files of the server.
func (s *Server) Dir() string { return filepath.Join(s.dir, "data") }

// MakesCollections lets a restarted server make a missing collection at a write, as it does by default in production.
func (s *Server) MakesCollections() { s.auto = true }

// Client returns a client, which is closed when the test ends.
func (s *Server) Client() *weaviate.Weaviate {
	s.t.Helper()
	w := must.Get(weaviate.New(s.Config()))(s.t)
	s.t.Cleanup(w.Close)
	return w
}

// Kill ends the server as a crash of its process does. Killing a stopped server does nothing.
func (s *Server) Kill() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	_ = syscall.Kill(-s.process.Pid, syscall.SIGCONT) // it may be paused
	_ = syscall.Kill(-s.process.Pid, syscall.SIGKILL)
	select {
	case <-s.ended:
		s.process = nil
	case <-time.After(hang.Limit):
		s.t.Fatal("Weaviate does not end")
	}
}

// Restart kills the server if it runs, and starts it on the same addresses and files.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.run()
}

// Empty kills the server, removes its files, and starts it again.
func (s *Server) Empty() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, os.RemoveAll(s.Dir()))
	s.run()
}

// Save kills the server, copies its files, and starts it again. Back puts the copy in the place of the files.
func (s *Server) Save() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, os.CopyFS(s.saved(), os.DirFS(s.Dir())))
	s.run()
}

// Back kills the server and starts it with the files that Save has copied.
func (s *Server) Back() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, os.RemoveAll(s.Dir()))
	require.NoError(s.t, os.Rename(s.saved(), s.Dir()))
	s.run()
}

func (s *Server) saved() string { return filepath.Join(s.dir, "saved") }

// Pause makes the server hang until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// GiveWay lowers the server's weight at the processors to a ninth of that of others, until it is started again, as
// docker-compose.index.yml does.
func (s *Server) GiveWay() {
	s.t.Helper()
	require.NoError(s.t, syscall.Setpriority(syscall.PRIO_PGRP, s.process.Pid, 10))
}

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.process == nil {
		s.t.Fatal("Weaviate is stopped")
	}
	require.NoError(s.t, syscall.Kill(-s.process.Pid, sig))
}

// Ports returns the ports that lead to the server.
func (s *Server) Ports() []string { return s.ports }

func (s *Server) environment(ports []string) []string {
	of := append(os.Environ(),
		"PERSISTENCE_DATA_PATH="+s.Dir(), "GRPC_PORT="+ports[1],
		"CLUSTER_HOSTNAME=node1", "CLUSTER_IN_LOCALHOST=true", "CLUSTER_BIND_ADDR=127.0.0.1",
		"CLUSTER_ADVERTISE_ADDR=127.0.0.1", "CLUSTER_GOSSIP_BIND_PORT="+ports[2],
		"CLUSTER_DATA_BIND_PORT="+ports[3], "RAFT_PORT="+ports[4], "RAFT_INTERNAL_RPC_PORT="+ports[5],
		"RAFT_BOOTSTRAP_EXPECT=1", "RAFT_TIMEOUTS_MULTIPLIER=1",
		"CLUSTER_BASIC_AUTH_USERNAME=node", "CLUSTER_BASIC_AUTH_PASSWORD="+s.key,
		"AUTHENTICATION_APIKEY_ENABLED=true", "AUTHENTICATION_APIKEY_ALLOWED_KEYS="+s.key,
		"AUTHENTICATION_APIKEY_USERS=turnledger", "AUTHORIZATION_ADMINLIST_ENABLED=true",
		"AUTHORIZATION_ADMINLIST_USERS=turnledger", "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED=false",
		"DISABLE_TELEMETRY=true", "GO_PROFILING_DISABLE=true", "ENABLE_MODULES=", "LOG_LEVEL=warning",
		"AUTOSCHEMA_ENABLED="+strconv.FormatBool(s.auto), "QUERY_MAXIMUM_RESULTS=10000",
	)
	return append(of, s.more...)
}

// outsidePorts is how many of the ports are reached from outside: those of REST and gRPC.
const outsidePorts = 2

// ownPorts are those of a server in a network of its own: of REST, gRPC, gossip, data, Raft and its calls. The system
// takes none of them for the other end of a connection.
var ownPorts = []string{"8080", "9090", "7946", "7947", "8300", "8301"}

func (s *Server) run() {
	s.t.Helper()
	logged := must.Get(os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(s.t)
	ports := s.ports
	if Apart() {
		ports = ownPorts
	}
	cmd := exec.Command(s.program, "--host", "127.0.0.1", "--port", ports[0], "--scheme", "http")
	cmd.Env, cmd.Dir, cmd.SysProcAttr = s.environment(ports), s.dir, apart()
	if Apart() {
		cmd.ExtraFiles = s.listeners()
		require.NoError(s.t, alone(cmd, ports[:outsidePorts]))
	}
	err := s.launch(cmd, logged)
	if err != nil {
		s.t.Fatalf("start Weaviate: %v", err)
	}
	s.awaitReady()
}

// listeners listen on the ports that lead to the server. The test keeps these ports, but for a moment something may
// still hold one: a process that is being started holds every file of its parent until it runs its program.
func (s *Server) listeners() (files []*os.File) {
	s.t.Helper()
	for _, port := range s.ports[:outsidePorts] {
		number := must.Get(strconv.Atoi(port))(s.t)
		l := listen(s.t, number)
		for end := time.Now().Add(hang.Limit); l == nil && time.Now().Before(end); l = listen(s.t, number) {
			pause.For(s.t.Context(), 5*time.Millisecond)
		}
		if l == nil {
			s.t.Fatalf("start Weaviate: port %s is taken", port)
		}
		f := must.Get(l.(*net.TCPListener).File())(s.t)
		_ = l.Close()
		files = append(files, f)
	}
	return files
}

// launch starts the server. ended is closed when all its processes have ended: they share the pipe of its output.
func (s *Server) launch(cmd *exec.Cmd, logged *os.File) error {
	log := struct{ io.Writer }{logged}
	cmd.Stdout, cmd.Stderr = log, log
	done, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // when this thread ends, Linux takes that for the death of the parent
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		for _, f := range cmd.ExtraFiles {
			_ = f.Close()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // a killed server ends with an error
			_ = logged.Close()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.ended, s.process = done, cmd.Process
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "weaviate.log") }

func (s *Server) awaitReady() {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(hang.Limit)
	for {
		if s.isReady() {
			return
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(s.log())
			s.t.Fatalf("Weaviate ended at once:\n%s", text)
		case <-deadline:
			text, _ := os.ReadFile(s.log())
			s.t.Fatalf("Weaviate does not answer:\n%s", text)
		case <-tick.C:
		}
	}
}

func (s *Server) isReady() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.GRPC())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	// A gRPC server speaks first. Another process may have taken the connection without the server being up.
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/v1/.well-known/ready", nil)
	if err != nil {
		s.t.Fatal(fmt.Errorf("ask Weaviate: %w", err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Disk returns the bytes of all files of the server.
func (s *Server) Disk() (bytes int64) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(s.Dir(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a file may go meanwhile
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	}))
	return bytes
}

// Memory returns the bytes of memory of the server that no file holds, its heap above all; 0 where the system does not
// say.
func (s *Server) Memory() int64 {
	pid := s.process.Pid
	// In a network of its own the server is a child of the process that passes connections on.
	found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range found {
		text, _ := os.ReadFile(name)
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pid = child
		}
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// source is the folder of the module that pins the server's version.
func source() (string, error) {
	product, err := gobuild.Product()
	return filepath.Join(product, "deploy", "testkit", "weaviate", "server"), err
}

// command is the package of the server.
const command = "github.com/weaviate/weaviate/cmd/weaviate-server"

// Program returns the path of a Weaviate, which it builds from its Go module when this machine has none of the pinned
// version and this Go version: some minutes, once. It stays in the user's cache folder. Several processes may call it
// at once; one builds.
func Program(ctx context.Context, progress io.Writer) (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	source, err := source()
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	_, _ = io.WriteString(digest, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		_, _ = digest.Write(text)
	}
	dir := filepath.Join(cache, "turnledger")
	path = filepath.Join(dir, "weaviate-"+hex.EncodeToString(digest.Sum(nil)[:8]))
	if isThere(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if isThere(path) {
		return path, nil
	}
	return path, build(ctx, source, path, progress)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// build leaves nothing at the path unless the whole build has succeeded.
func build(ctx context.Context, source, path string, progress io.Writer) error {
	_, _ = fmt.Fprintln(progress, "building Weaviate for the tests; this takes some minutes, once a machine")
	began := time.Now()
	half := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", half, command)
	cmd.Dir, cmd.Env = source, append(os.Environ(),
		"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Weaviate from its Go module, as the tests need it: %w\n%s", err, said)
	}
	_, _ = fmt.Fprintf(progress, "built in %s: %s\n", time.Since(began).Round(time.Second), path)
	return os.Rename(half, path)
}
