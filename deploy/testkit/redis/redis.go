// Package redis gives a test a Redis of its own: a real redis-server on a private unix socket, started in a few
// milliseconds, stopped when the test ends. It never evicts (maxmemory-policy noeviction) and writes to disk only
// when it is stopped or told to, uncompressed, so that a search of its bytes finds what it holds.
//
// A missing redis-server fails the test and names the command that installs it; nothing is skipped.
package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
)

// Server is a Redis that belongs to one test. If a method can't do its work, it fails the test; so call the methods
// from the test's own goroutine.
type Server struct {
	t       testing.TB
	program string
	dir     string // short: it holds the socket, whose path is limited to 107 bytes
	done    chan struct{}
	proc    *os.Process
	tls     []string // arguments of a listener with TLS
	tlsURL  string
}

// Start runs an empty Redis for t.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("valkey-server") // its name in newer distributions
	}
	if err != nil {
		t.Fatal("Redis is not installed: run `" + installCommand() + "`")
	}
	//nolint:usetesting // t.TempDir's path is too long for a socket
	dir := must.Get(os.MkdirTemp("/tmp", "turnledger-redis-"))(t)
	s := &Server{t: t, program: program, dir: dir}
	t.Cleanup(func() {
		s.Kill()
		assert.NoError(t, os.RemoveAll(dir))
	})
	s.run()
	return s
}

// StartTLS runs a Redis for t that also listens on a port of 127.0.0.1, with TLS. Clients need no certificate.
func StartTLS(t testing.TB, ca, cert, key string) *Server {
	t.Helper()
	port := ports.Free(t)
	s := Start(t)
	s.Kill()
	s.tls = []string{"--tls-port", port, "--bind", "127.0.0.1", "--tls-ca-cert-file", ca, "--tls-cert-file", cert,
		"--tls-key-file", key, "--tls-auth-clients", "no"}
	s.tlsURL = "rediss://127.0.0.1:" + port
	s.run()
	return s
}

// TLSURL returns the address of the listener with TLS.
func (s *Server) TLSURL() string { return s.tlsURL }

func installCommand() string {
	switch {
	case runtime.GOOS == "darwin":
		return "brew install redis"
	case os.Geteuid() == 0:
		return "apt-get install -y redis-server"
	default:
		return "sudo apt-get install -y redis-server"
	}
}

// URL returns the address, in the form of rueidis.ParseURL. It stays the same over Stop and Restart.
func (s *Server) URL() string { return "unix://" + s.socket() }

func (s *Server) socket() string { return filepath.Join(s.dir, "redis.sock") }

// Data says which data a restarted server has.
type Data int

const (
	// Empty: none, as after a crash of a cache in memory.
	Empty Data = iota
	// Kept: the data that the server held when Stop was called.
	Kept
)

// Restart stops the server if it runs and starts it on the same address.
func (s *Server) Restart(data Data) {
	s.t.Helper()
	s.Stop()
	if data == Empty {
		require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, "dump.rdb")))
	}
	s.run()
}

// Stop ends the server, so that nothing answers at its address. Its data is kept for a Restart(Kept). Stopping a
// stopped server does nothing.
func (s *Server) Stop() {
	s.t.Helper()
	if s.proc == nil {
		return
	}
	// After a successful SHUTDOWN the server closes the connection without an answer.
	if answer, err := s.command("SHUTDOWN SAVE"); err == nil {
		s.t.Fatalf("stop Redis: %s", answer)
	}
	s.awaitEnd()
}

// Kill ends the server as a crash does: its data is lost. Killing a stopped server does nothing.
func (s *Server) Kill() {
	s.t.Helper()
	if s.proc == nil {
		return
	}
	_ = s.proc.Signal(syscall.SIGCONT) // it may be paused
	_ = s.proc.Kill()
	s.awaitEnd()
}

// Pause makes the server hang until Resume: it accepts connections and answers nothing.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.proc == nil {
		s.t.Fatal("Redis is stopped")
	}
	require.NoError(s.t, s.proc.Signal(sig))
}

// Config sets the server's policy for a full memory, for instance "allkeys-lru". A restart resets it.
func (s *Server) Config(policy string) {
	s.t.Helper()
	if answer, err := s.command("CONFIG SET maxmemory-policy " + policy); err != nil || answer != "+OK" {
		s.t.Fatalf("configure Redis: %s %v", answer, err)
	}
}

func (s *Server) run() {
	s.t.Helper()
	args := append([]string{"--port", "0", "--unixsocket", s.socket(), "--dir", s.dir, "--save", "",
		"--appendonly", "no", "--maxmemory-policy", "noeviction", "--rdbcompression", "no", "--logfile", s.log(),
		"--daemonize", "no"}, s.tls...)
	cmd := exec.Command(s.program, args...) // ended by Cleanup
	cmd.SysProcAttr = apart()
	s.done = make(chan struct{})
	started := make(chan error, 1)
	go func(done chan struct{}) {
		runtime.LockOSThread() // when this thread ends, Linux takes that for the death of the parent
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a killed server ends with an error
		}
	}(s.done)
	if err := <-started; err != nil {
		s.t.Fatalf("start Redis: %v", err)
	}
	s.proc = cmd.Process
	s.awaitReady()
}

func (s *Server) log() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) awaitReady() {
	s.t.Helper()
	hang.Until(s.t, func() bool {
		select {
		case <-s.done:
			text, _ := os.ReadFile(s.log())
			s.t.Fatalf("Redis ended at once:\n%s", text)
		default:
		}
		answer, err := s.command("PING")
		return err == nil && answer == "+PONG"
	}, "Redis does not answer")
}

func (s *Server) awaitEnd() {
	s.t.Helper()
	select {
	case <-s.done:
		s.proc = nil
	case <-time.After(hang.Limit):
		s.t.Fatal("Redis does not end")
	}
}

// command sends one line and returns the first line of the answer.
func (s *Server) command(line string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Limit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(hang.Limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
		return "", err
	}
	answer, err = bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}
