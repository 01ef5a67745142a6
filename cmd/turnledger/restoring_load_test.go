package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
)

// Readers and writers ask without pause while a backup becomes the log of the server that they ask, and each step of
// the server takes its own time, drawn from a seed: all that the server does on the way is logged, and the log is slow.
// Each reader is told the state of before, 503 or the restored state, and never again the former after the latter.
// What was erased since the backup is shown to nobody, and every write that was acknowledged is in the log that stays.
func TestARestoreUnderLoadIsSeenAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	from := stack.TakeBackup(t)
	for seed := range restoreSeeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { restoreUnderLoad(t, from, seed) })
	}
}

// restoreSeeds are all in the long form, and a few in the short one.
func restoreSeeds() (seeds func(yield func(uint64) bool)) {
	n := uint64(4)
	if stack.Long() {
		n = 200
	}
	first := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("TURNLEDGER_SEED"), 10, 64); err == nil {
		first, n = s, 1
	}
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(first + i) {
				return
			}
		}
	}
}

// slowLog takes lines, each of them in its own time while slow is set.
type slowLog struct {
	slow atomic.Bool
	mu   sync.Mutex
	rng  *rand.Rand
	buf  bytes.Buffer
}

func (l *slowLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slow.Load() && l.rng.IntN(2) == 0 {
		<-time.After(time.Duration(l.rng.Int64N(int64(60 * time.Millisecond))))
	}
	return l.buf.Write(b)
}

func (l *slowLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// restoreUnderLoad runs the server in the test's own process: only there does a write to the log wait for a slow one.
func restoreUnderLoad(t *testing.T, from stack.Backup, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 14))
	log := &slowLog{rng: rand.New(rand.NewPCG(seed, 15))}
	l, err := net.Listen("tcp", stack.FreeAddress(t))
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, stop := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	go func() {
		exited <- run(ctx, []string{"serve", "--verbose", "--data-dir", stack.DataDir(t), "--listen", address,
			"--roles", "api,context,eraser"}, io.Discard, log)
	}()
	defer func() {
		log.slow.Store(false)
		stop()
		assert.Equal(t, exitDone, <-exited, "%s", log)
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, log)
		}
	}()
	p := &stack.Process{URL: "http://" + address, Log: &stack.Buffer{}}
	p.WaitReady(t)
	for i := range stack.BackupSessions {
		require.Empty(t, p.Context(t, fmt.Sprint("s", i)))
	}
	w := &witness{t: t, answers: map[string]int{}}
	asking, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 5 {
		reads := rand.New(rand.NewPCG(seed, uint64(100+i)))
		all.Go(func() { w.read(asking, stack.NewCaller(p.URL, i%2 == 0), reads) })
	}
	for i := range 2 {
		all.Go(func() {
			w.write(asking, stack.NewCaller(p.URL, i == 0), fmt.Sprint("w", i),
				func() bool { return strings.Contains(log.String(), "a backup is being restored") })
		})
	}
	<-time.After(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
	log.slow.Store(true)
	code, _, errs := p.Run(t, "restore", from.Dir, "--erasures", from.Erasures)
	restored := code == exitDone
	if restored {
		w.restored.Store(true)
	} else {
		require.Contains(t, errs, "log_not_empty")
	}
	p.WaitReady(t)
	log.slow.Store(false)
	<-time.After(50*time.Millisecond + time.Duration(rng.Int64N(int64(50*time.Millisecond))))
	end()
	all.Wait()
	log.slow.Store(false)
	require.NotContains(t, log.String(), "begun anew", "the server was not held while its streams were replaced")
	for i := range stack.BackupSessions {
		want := stack.Exchanges(2)
		if !restored {
			want = []any{}
		}
		status, got, err := stack.NewCaller(p.URL, false).ReadContext(ctx, fmt.Sprint("s", i))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.ElementsMatch(t, want, got)
	}
	for _, id := range w.acknowledged {
		_, got, err := stack.NewCaller(p.URL, false).ReadContext(ctx, id)
		require.NoError(t, err)
		require.Len(t, got, 1, "the write of %s was acknowledged", id)
	}
	t.Logf("restored %v, answers %v, %d writes acknowledged", restored, w.answers, len(w.acknowledged))
}

// witness keeps what readers and writers were told.
type witness struct {
	t *testing.T
	// restored: turnledger restore has ended, or a reader was shown the restored state.
	restored atomic.Bool

	mu           sync.Mutex
	answers      map[string]int
	acknowledged []string
}

func (w *witness) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[what]++
}

func (w *witness) read(ctx context.Context, a *stack.Process, rng *rand.Rand) {
	for ctx.Err() == nil {
		id, want := fmt.Sprint("s", rng.IntN(stack.BackupSessions)), 4
		if rng.IntN(stack.BackupSessions) == 0 {
			id, want = "gone", 0
		}
		after := w.restored.Load()
		status, got, err := a.ReadContext(ctx, id)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.count("broken")
			assert.NoError(w.t, err, "a connection is broken off")
		case status == http.StatusServiceUnavailable:
			w.count("503")
		case status != http.StatusOK && status != http.StatusGone:
			assert.Fail(w.t, "another answer", "%d", status)
		case len(got) == want && want > 0:
			w.restored.Store(true)
			w.count("restored")
		case len(got) == 0:
			w.count("before")
			assert.False(w.t, after && want > 0, "an empty history of %s after the restored one", id)
		default:
			assert.Fail(w.t, "a history of neither state", "%s: %v", id, got)
		}
	}
}

func (w *witness) write(ctx context.Context, a *stack.Process, name string, begun func() bool) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprint(name, "-", i)
		if begun() {
			status, _, err := a.Call(ctx, http.MethodPost, stack.SessionPath(id)+"/turns",
				map[string]any{"request_id": "r", "question_neutral": "q"})
			if err == nil && status == http.StatusCreated {
				w.mu.Lock()
				w.acknowledged = append(w.acknowledged, id)
				w.mu.Unlock()
			}
		}
		<-time.After(time.Millisecond)
	}
}
