// Package stack runs Turnledger as its users do: processes of one binary, which are called over HTTP and on the command
// line. The tests of systemtest use nothing else of it.
//
//	func TestMain(m *testing.M) { stack.Main(m) }
//
//	func TestAnswerIsShown(t *testing.T) {
//		p := stack.Start(t, nil, "serve", "--data-dir", stack.DataDir(t))
//		p.RecordExchange(t, "session", 0)
//		…
//
// Processes, folders and servers end with the test that asked for them.
package stack

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events"
)

// Process is a running turnledger.
type Process struct {
	Cmd *exec.Cmd
	URL string
	Log *printed.Buffer // standard error
	Out *printed.Buffer // standard output
	// Client makes the calls; nil: http.DefaultClient.
	Client *http.Client
}

// FreeAddress returns an unused loopback address that stays free until the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return ports.FreeAddress(t)
}

// DataDir returns a new folder that a PostgreSQL of another user may enter. It goes after the test, with what a process
// that was killed has staged in memory.
func DataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tl-data-") //nolint:usetesting // a folder of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Name() != "turnledger.staging" {
				return nil // a folder may go while it is walked
			}
			if staging, err := os.ReadFile(path); err == nil {
				_ = os.RemoveAll(string(staging))
			}
			return nil
		})
		_ = os.RemoveAll(dir)
	})
	return dir
}

// ServeNATS returns the settings of a process whose NATS other processes use at the address.
func ServeNATS(address string) []string {
	return []string{"TURNLEDGER_NATS_LISTEN=" + address, "TURNLEDGER_SYNC=always"}
}

// JoinNATS returns the settings of a process that uses another process's NATS.
func JoinNATS(address string) []string {
	return []string{"TURNLEDGER_NATS_URL=nats://" + address, "TURNLEDGER_NATS_LISTEN="}
}

// Start runs the binary and waits until it is ready.
func Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := Launch(t, env, args...)
	p.WaitReady(t)
	return p
}

// Serve starts a server on a data directory of its own.
func Serve(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return Start(t, env, append([]string{"serve", "--data-dir", DataDir(t)}, args...)...)
}

// Launch runs the binary at a free address and returns at once.
func Launch(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return LaunchAt(t, FreeAddress(t), env, args...)
}

// LaunchAt runs the binary at an address and returns at once.
func LaunchAt(t testing.TB, address string, env []string, args ...string) *Process {
	t.Helper()
	return LaunchProgram(t, Binary(t), address, env, args...)
}

// LaunchProgram runs a binary of another version at an address and returns at once.
func LaunchProgram(t testing.TB, binary, address string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{URL: "http://" + address, Log: &printed.Buffer{}, Out: &printed.Buffer{}}
	p.Cmd = exec.Command(binary, append(args, "--listen", address)...)
	// On a busy machine a memory would miss the time that a prompt waits for it, and the prompt would be another one.
	own := []string{"TURNLEDGER_NATS_LISTEN=" + FreeAddress(t), "TURNLEDGER_MEMORY_BUDGET=10s"}
	p.Cmd.Env = append(environment(), append(own, env...)...)
	p.Cmd.Stdout, p.Cmd.Stderr = p.Out, p.Log
	require.NoError(t, p.Cmd.Start())
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		_, _ = p.Cmd.Process.Wait()
	})
	return p
}

// WaitReady waits until the process reports that it is ready.
func (p *Process) WaitReady(t testing.TB) {
	t.Helper()
	hang.Until(t, func() bool {
		resp, err := http.Get(p.URL + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "not ready: %s", p.Log)
}

// WaitReadyOr waits until the process is ready or has exited, and reports whether it is ready.
func (p *Process) WaitReadyOr(t testing.TB, exited <-chan error) bool {
	t.Helper()
	for began := time.Now(); time.Since(began) < hang.Limit; {
		select {
		case err := <-exited:
			require.Error(t, err, "%s", p.Log)
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if resp, err := http.Get(p.URL + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	require.FailNow(t, "neither ready nor exited", "%s", p.Log)
	return false
}

// WaitLog waits until the process's log matches a pattern. A line may arrive after the event that it reports, since it
// comes through a pipe.
func (p *Process) WaitLog(t testing.TB, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	hang.Until(t, func() bool { return wanted.MatchString(p.Log.String()) }, "no %q in %s", pattern, p.Log)
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Kill())
	_ = p.Cmd.Wait()
}

// Stop sends SIGINT and requires that the process ends with status 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.Cmd.Wait(), "%s", p.Log)
}

// Shared returns a server of eight partitions that the tests of this package share, until Runner ends them. It is for
// tests that only read and write: each has sessions and identities of its own, leaves the process running, and says
// nothing of positions, totals or the log's other events.
func Shared(t testing.TB) *Process {
	t.Helper()
	shared.once.Do(func() {
		// A branch may stand in another partition than its parent.
		shared.process = Serve(outlived{t}, []string{"TURNLEDGER_PARTITIONS=8"})
	})
	require.NotNil(t, shared.process, "the test that started the server has failed")
	return shared.process
}

var shared struct {
	once     sync.Once
	process  *Process
	cleanups []func()
}

// outlived is a test that starts what outlives it.
type outlived struct{ testing.TB }

// Cleanup keeps a function for the end of all tests.
func (outlived) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

// Context returns one that does not end with the test.
func (outlived) Context() context.Context { return context.Background() }

// stopShared stops what tests have shared.
func stopShared() {
	for _, cleanup := range slices.Backward(shared.cleanups) {
		cleanup()
	}
}

// ResidentMemory returns the memory of the process, in bytes.
func (p *Process) ResidentMemory(t testing.TB) int64 { return MemoryOf(t, p.Cmd.Process.Pid, "VmRSS") }

// MemoryOf returns a field of /proc/PID/status, such as VmRSS, in bytes.
func MemoryOf(t testing.TB, pid int, name string) int64 {
	t.Helper()
	raw := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return must.Get(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t) << 10
		}
	}
	t.Fatal("no " + name)
	return 0
}

// Model is a scripted model that processes ask.
type Model struct{ *modeltest.Scripted }

// NewModel starts a model server that ends with the test.
func NewModel(t testing.TB) *Model { return &Model{modeltest.NewScripted(t)} }

// Env returns the settings of a process that asks this model.
func (m *Model) Env() []string {
	return []string{"TURNLEDGER_MODEL_URL=" + m.URL + "/v1", "TURNLEDGER_MODEL_NAME=scripted"}
}

// EventMessage returns the message that publishes a fact. If body is not empty, it replaces the fact's body.
func EventMessage(f events.Fact, body string) *nats.Msg {
	env, err := events.Encode(f, time.Now())
	if err != nil {
		panic(err)
	}
	m := &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
	if body != "" {
		m.Data = []byte(body)
	}
	return m
}

// StartNATS starts a NATS that ends with the test. It syncs every event, as in deploy/nats.conf. Its data is in a
// folder of the test, unless options name one.
func StartNATS(t testing.TB, options natsserver.Options) *natsserver.Server {
	t.Helper()
	options.ServerName, options.Host, options.Port = "outside", "127.0.0.1", natsserver.RANDOM_PORT
	options.NoSigs, options.NoLog, options.JetStream, options.SyncAlways = true, true, true, true
	options.MaxPayload = 8 << 20
	if options.StoreDir == "" {
		options.StoreDir = t.TempDir()
	}
	server := must.Get(natsserver.NewServer(&options))(t)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	require.True(t, server.ReadyForConnections(hang.Limit))
	return server
}

// binaryVariable names the binary that the tests run, which make builds once for all packages.
// Without it each test process builds its own.
const binaryVariable = "TURNLEDGER_TEST_BINARY"

// Main is a package's TestMain: it runs the tests, several at once, removes what they shared, and exits.
func Main(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < leastParallel {
		_ = flag.Set("test.parallel", strconv.Itoa(leastParallel)) // the flag of package testing
	}
	os.Exit(Runner(m).Run())
}

// leastParallel is the least number of tests that run at once: they wait more than they compute.
const leastParallel = 5

// Runner wraps the tests so that their run ends with the removal of what they shared.
func Runner(tests interface{ Run() int }) interface{ Run() int } { return runner{tests} }

type runner struct{ tests interface{ Run() int } }

func (r runner) Run() int {
	defer built.Remove()
	defer stopShared()
	return pg.Runner(r.tests).Run()
}

// Binary returns the path of the binary.
func Binary(t testing.TB) string {
	t.Helper()
	return must.Get(findBinary())(t)
}

var built = &gobuild.Program{Name: "turnledger", Package: "github.com/turnledger/turnledger/cmd/turnledger"}

// findBinary builds the binary, unless the variable names one. With the race detector a process needs three times the
// processor time, and all processes of a test wait for each other. So only the long forms build it with the detector.
var findBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", binaryVariable, err)
		}
		return path, nil
	}
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && Long() && slices.Contains(info.Settings, race) {
		built.Flags = append(built.Flags, "-race")
	}
	return built.Path()
})

// environment returns the variables that the binary inherits: all but those for the tests.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "TURNLEDGER_TEST_") ||
			strings.HasPrefix(variable, "TURNLEDGER_TORTURE=") || strings.HasPrefix(variable, "TURNLEDGER_SEED=")
	})
}

// Long reports whether the long form of a test is asked for.
func Long() bool { return os.Getenv("TURNLEDGER_TORTURE") != "" }

// Seed returns the seed of TURNLEDGER_SEED, or a new one, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TURNLEDGER_SEED"); text != "" {
		seed = must.Get(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("seed %d", seed)
	return seed
}

// Exit statuses of the command line.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Run runs a command line to its end, and returns its status and output.
func Run(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	return run(t, Binary(t), nil, args)
}

// Run runs a verb of the process's binary against the process, to its end.
func (p *Process) Run(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	binary := Binary(t)
	if p.Cmd != nil {
		binary = p.Cmd.Path
	}
	return run(t, binary, []string{"TURNLEDGER_URL=" + p.URL}, args)
}

// Done runs a verb that must succeed, and returns what it prints.
func (p *Process) Done(t testing.TB, args ...string) (out string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, ExitDone, code, "%v: %s%s\n%s", args, out, errs, p.Log)
	return out
}

// Fails runs a verb that must fail, though not as wrong use, and returns what it says.
func (p *Process) Fails(t testing.TB, args ...string) (errs string) {
	t.Helper()
	code, out, errs := p.Run(t, args...)
	require.Equal(t, ExitFailed, code, "%v: %s%s", args, out, errs)
	return errs
}

func run(t testing.TB, binary string, env, args []string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(environment(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// Command returns a verb against the process. The test starts it itself.
func (p *Process) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Binary(t), args...)
	cmd.Env = append(environment(), "TURNLEDGER_URL="+p.URL)
	return cmd
}
