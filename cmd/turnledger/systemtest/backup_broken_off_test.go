package systemtest_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// What a server shows of a backup that is restored with what was erased since.
const (
	nothing  = "nothing"
	restored = "the backup"
)

// shownAfter reads all sessions. They must be those of one state.
func shownAfter(t *testing.T, p *stack.Process) string {
	t.Helper()
	states := map[string]bool{}
	for i := range stack.BackupSessions {
		got := p.Context(t, fmt.Sprint("s", i))
		if len(got) > 0 {
			require.Equal(t, stack.Exchanges(2), got)
		}
		states[map[bool]string{true: restored, false: nothing}[len(got) > 0]] = true
	}
	require.Len(t, states, 1, "a part of a log is served")
	require.Empty(t, p.Context(t, "gone"), "what was erased is served")
	if states[restored] {
		return restored
	}
	return nothing
}

// slowWay stands between a client and a server. It passes on so many bytes of what the client sends, and the rest when
// released is closed. reached is closed at that byte.
func slowWay(t *testing.T, to string, bytes int64) (url string, reached, released chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	reached, released = make(chan struct{}), make(chan struct{})
	var left atomic.Int64
	left.Store(bytes)
	once := sync.OnceFunc(func() { close(reached) })
	pass := func(server, client net.Conn) {
		defer func() { _ = server.Close() }()
		buf := make([]byte, 4<<10)
		for {
			n, err := client.Read(buf)
			if left.Add(-int64(n)) <= 0 {
				once()
				<-released
			}
			if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(server, client)
			go func() {
				_, _ = io.Copy(client, server)
				_ = client.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String(), reached, released
}

// A server that is killed, or stopped, at any moment of a restore serves afterwards what it had before, or all of the
// backup without what was erased since, or does not start and says what to do. The backup can then be restored.
func TestARestoreThatIsBrokenOffLeavesNoPartOfALog(t *testing.T) {
	t.Parallel()
	seeds := 4
	if stack.Long() {
		seeds = 200
	}
	backups, sizes := map[string]stack.Backup{}, map[string]int64{}
	for _, n := range []string{"1", "4"} {
		backups[n] = stack.TakeBackup(t, "--partitions", n)
		files, err := filepath.Glob(filepath.Join(backups[n].Dir, "*"))
		require.NoError(t, err)
		for _, name := range files {
			info, err := os.Stat(name)
			require.NoError(t, err)
			sizes[n] += info.Size()
		}
	}
	first := stack.Seed(t)
	ends := map[string]int{}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(first+seed, 14))
		partitions := []string{"1", "4"}[rng.IntN(2)]
		e := brokenOff{dir: stack.DataDir(t), args: []string{"--partitions", partitions}, from: backups[partitions]}
		size := sizes[partitions]
		// A third is broken off while the client sends, the others when the server has all.
		if e.bytes = rng.Int64N(size + size/2); e.bytes > size {
			e.bytes = 1 << 40
		}
		e.wait = time.Duration(rng.Int64N(int64(600 * time.Millisecond)))
		e.signal = []os.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGKILL}[seed%3]
		e.stalls = stack.Long() && seed%2 == 0
		ends[e.run(t)]++
	}
	t.Logf("first seed %d: %v", first, ends)
}

type brokenOff struct {
	dir    string
	args   []string
	from   stack.Backup
	bytes  int64         // that the server gets before it is killed
	wait   time.Duration // after that
	signal os.Signal
	stalls bool // the client sends nothing more to a server that is being stopped
}

func (e brokenOff) serve(t *testing.T) *stack.Process {
	t.Helper()
	return stack.Launch(t, nil, append([]string{"serve", "--data-dir", e.dir}, e.args...)...)
}

func (e brokenOff) run(t *testing.T) (end string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s after %d bytes and %s, %v", e.signal, e.bytes, e.wait, e.args)
		}
	}()
	p := e.serve(t)
	p.WaitReady(t)
	url, reached, released := slowWay(t, p.URL, e.bytes)
	client := (&stack.Process{URL: url}).Command(t, "restore", e.from.Dir, "--erasures", e.from.Erasures)
	require.NoError(t, client.Start())
	ended := make(chan error, 1)
	go func() { ended <- client.Wait() }()
	if e.bytes < 1<<40 {
		select {
		case <-reached:
		case err := <-ended: // it sent less than that
			ended <- err
		}
	}
	<-time.After(e.wait)
	require.NoError(t, p.Cmd.Process.Signal(e.signal))
	sends := e.signal == syscall.SIGINT && !e.stalls
	if sends {
		close(released)
	}
	begun := time.Now()
	_ = p.Cmd.Wait()
	require.Less(t, time.Since(begun), 40*time.Second, "%s", p.Log)
	if !sends {
		close(released)
	}
	told := <-ended == nil

	again := e.serve(t)
	exited := make(chan error, 1)
	go func() { exited <- again.Cmd.Wait() }()
	if again.WaitReadyOr(t, exited) {
		end = shownAfter(t, again)
	} else {
		end = "refused"
		require.Contains(t, again.Log.String(), "empty the data directory and restore again")
		require.NoError(t, os.RemoveAll(filepath.Join(e.dir, "nats")))
		again = e.serve(t)
		again.WaitReady(t)
	}
	require.False(t, told && end != restored, "turnledger restore ended well, and then: %s", end)
	if end != restored {
		again.Done(t, "restore", e.from.Dir, "--erasures", e.from.Erasures)
		again.WaitReady(t)
	}
	require.Equal(t, restored, shownAfter(t, again))
	require.NoError(t, again.Cmd.Process.Kill())
	return fmt.Sprint(e.signal, ": ", end)
}

// A backup is restored through the process whose NATS another one uses: that one can't hold it still. Readers at
// both are told the state of before, 503 or the restored one, and a write that is acknowledged is in the log that
// stays. The process that did not restore ends, or answers 503, until it is started again.
func TestARestoreUnderAnotherProcess(t *testing.T) {
	t.Parallel()
	from := stack.TakeBackup(t)
	for range map[bool]int{false: 1, true: 30}[stack.Long()] {
		nats, dir := stack.FreeAddress(t), stack.DataDir(t)
		serve := []string{"serve", "--data-dir", dir, "--roles", "api,context,eraser", "--verbose"}
		host := stack.Start(t, stack.ServeNATS(nats), serve...)
		joined := stack.Start(t, stack.JoinNATS(nats), "serve", "--data-dir", stack.DataDir(t), "--roles",
			"api,context")
		errs := joined.Fails(t, "restore", from.Dir, "--erasures", from.Erasures)
		require.Contains(t, errs, "restore through that one")
		require.Equal(t, nothing, shownAfter(t, joined))

		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		var acknowledged []string
		for i, p := range []*stack.Process{host, joined} {
			all.Go(func() { readsOneState(ctx, t, p, p == joined) })
			all.Go(func() {
				writes := stack.NewCaller(p.URL, true)
				for n := 0; ctx.Err() == nil; n++ {
					if !strings.Contains(host.Log.String(), "the empty log is gone") {
						<-time.After(time.Millisecond)
						continue
					}
					id := fmt.Sprint("w", i, "-", n)
					status, _, err := writes.Call(ctx, http.MethodPost, stack.SessionPath(id)+"/turns",
						map[string]any{"request_id": "r", "question_neutral": "q"})
					if err == nil && status == http.StatusCreated {
						mu.Lock()
						acknowledged = append(acknowledged, id)
						mu.Unlock()
					}
				}
			})
		}
		host.Done(t, "restore", from.Dir, "--erasures", from.Erasures)
		<-time.After(100 * time.Millisecond)
		end()
		all.Wait()
		require.NotContains(t, host.Log.String(), "begun anew")
		host.WaitReady(t)
		require.Equal(t, restored, shownAfter(t, host))
		host.Stop(t)
		host = stack.Start(t, stack.ServeNATS(nats), serve...)
		require.Equal(t, restored, shownAfter(t, host))
		for _, id := range acknowledged {
			require.Len(t, host.Context(t, id), 1, "the write of %s was acknowledged", id)
		}
		host.Stop(t)
	}
}

// readsOneState asks for contexts without pause. Each is empty until the first one of the backup was shown.
func readsOneState(ctx context.Context, t *testing.T, p *stack.Process, mayEnd bool) {
	asks, seen := stack.NewCaller(p.URL, true), false
	for n := 0; ctx.Err() == nil; n++ {
		status, got, err := asks.ReadContext(ctx, fmt.Sprint("s", n%stack.BackupSessions))
		switch {
		case ctx.Err() != nil, err != nil && mayEnd:
			return
		case !assert.NoError(t, err), status == http.StatusServiceUnavailable:
		case !assert.Equal(t, http.StatusOK, status):
		case len(got) == 4:
			seen = true
		default:
			assert.Empty(t, got)
			assert.False(t, seen, "an empty history after the restored one")
		}
	}
}
