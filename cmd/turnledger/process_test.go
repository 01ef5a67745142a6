package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
)

// binary is turnledger as a process. With the race detector it takes three times the
// processor, on which all processes of a test wait for each other, so that only the long
// forms have it there.
var binary = sync.OnceValues(func() (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok && long() && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		built.Flags = append(built.Flags, "-race")
	}
	return built.Path()
})

var built = &natstest.Program{Name: "turnledger", Package: "github.com/turnledger/turnledger/cmd/turnledger"}

func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < waiting {
		_ = flag.Set("test.parallel", strconv.Itoa(waiting)) // the flag of package testing
	}
	code := m.Run()
	built.Remove()
	os.Exit(code)
}

// waiting is how many tests run at once at least: they wait for processes, files and time
// outs more than they compute.
const waiting = 5

// process is a running turnledger.
type process struct {
	cmd *exec.Cmd
	url string
	log *syncBuffer
	out *syncBuffer
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// freeAddress gives a loopback address that nobody listens on. Its port is below those that
// Linux gives to outgoing connections, of which other tests make many meanwhile.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(22_000)))
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	require.FailNow(t, "no port is free")
	return ""
}

// dataDir gives a folder that a PostgreSQL of another user may enter.
func dataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tl-data-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start runs the binary and waits until it is ready.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	p := launch(t, env, args...)
	p.waitReady(t)
	return p
}

func launch(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return launchAt(t, freeAddress(t), env, args...)
}

func launchAt(t testing.TB, address string, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	p := &process{url: "http://" + address, log: &syncBuffer{}, out: &syncBuffer{}}
	p.cmd = exec.Command(path, append(args, "--listen", address)...)
	p.cmd.Env = append(os.Environ(), append([]string{"TURNLEDGER_NATS_LISTEN=" + freeAddress(t)}, env...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_, _ = p.cmd.Process.Wait()
	})
	return p
}

func (p *process) waitReady(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond, "not ready: %s", p.log)
}

// says waits until the process has logged a text, which comes through a pipe after what
// it tells of.
func (p *process) says(t testing.TB, pattern string) {
	t.Helper()
	said := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool { return said.MatchString(p.log.String()) }, time.Minute, 10*time.Millisecond, "no %q in %s", pattern, p.log)
}

// kill is kill -9.
func (p *process) kill(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// stop is Ctrl-C, and must end well.
func (p *process) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.cmd.Wait(), "%s", p.log)
}

// call sends a JSON body and gives the status and the answer.
func (p *process) call(ctx context.Context, method, path string, body any) (int, map[string]any, error) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, r)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var out map[string]any
	err = json.NewDecoder(resp.Body).Decode(&out)
	return resp.StatusCode, out, err
}

// must is a call that has to answer a status.
func (p *process) must(t testing.TB, status int, method, path string, body any) map[string]any {
	t.Helper()
	got, out, err := p.call(t.Context(), method, path, body)
	require.NoError(t, err)
	require.Equal(t, status, got, "%s %s: %v", method, path, out)
	return out
}

func session(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

// turn records a whole turn.
func (p *process) turn(t testing.TB, id, request, question, answer string) string {
	t.Helper()
	out := p.must(t, http.StatusCreated, http.MethodPost, session(id)+"/turns", map[string]any{"request_id": request, "question_neutral": question})
	turn := out["turn_id"].(string)
	p.must(t, http.StatusOK, http.MethodPost, session(id)+"/turns/"+turn+"/finalize", map[string]any{"answer_neutral": answer})
	return turn
}

// context gives the messages of a context, the current one left out.
func (p *process) context(t testing.TB, id string) []any {
	t.Helper()
	out := p.must(t, http.StatusOK, http.MethodPost, session(id)+"/context", map[string]any{"message": "now", "include_pending": true, "max_messages": 100_000})
	messages := out["messages"].([]any)
	require.Equal(t, map[string]any{"role": "user", "content": "now"}, messages[len(messages)-1])
	return messages[:len(messages)-1]
}

func (p *process) recorder(t testing.TB) recorder {
	t.Helper()
	r, err := remote{URL: p.url}.recorder()
	require.NoError(t, err)
	return r
}
