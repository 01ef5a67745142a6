package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
)

// Readers and writers ask without pause while a backup becomes the log of the server that they ask, and each step of
// the server takes its own time, drawn from a seed: all that the server does on the way is logged, and the log is slow.
// Each reader is told the state of before, 503 or the restored state, and never again the former after the latter.
// What was erased since the backup is shown to nobody, and every write that was acknowledged is in the log that stays.
func TestARestoreUnderLoadIsSeenAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	from := takeBackup(t)
	for seed := range restoreSeeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { restoreUnderLoad(t, from, seed) })
	}
}

// restoreSeeds are all in the long form, and a few in the short one.
func restoreSeeds() (seeds func(yield func(uint64) bool)) {
	n := uint64(4)
	if long() {
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

// backedUp is a backup of sessions of two turns each, and of one that was erased since.
type backedUp struct{ dir, erasures string }

const restoredSessions = 5

func takeBackup(t *testing.T) backedUp {
	t.Helper()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	for i := range restoredSessions {
		p.say(t, fmt.Sprint("s", i), 0)
		p.say(t, fmt.Sprint("s", i), 1)
	}
	p.say(t, "gone", 0)
	b := backedUp{filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "erasures.jsonl")}
	code, _, errs := said(t, "backup", b.dir, "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	code, _, errs = said(t, "erase", "gone", "--wait", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	code, _, errs = said(t, "replay", "--type", "turnledger.session.erased.v1", "-o", b.erasures, "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	return b
}

// slowLog takes lines, each of them in its own time once it was told to.
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
		time.Sleep(time.Duration(l.rng.Int64N(int64(60 * time.Millisecond))))
	}
	return l.buf.Write(b)
}

func (l *slowLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

type asker struct {
	client *http.Client
	url    string
}

func newAsker(url string, kept bool) asker {
	return asker{&http.Client{Transport: &http.Transport{DisableKeepAlives: !kept}, Timeout: 30 * time.Second}, url}
}

// ask posts a body, and returns the status and the answer; 0 where there was none.
func (a asker) ask(ctx context.Context, path string, body any) (int, map[string]any, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	var out map[string]any
	return resp.StatusCode, out, errors.Join(err, json.Unmarshal(all, &out))
}

func (a asker) history(ctx context.Context, id string) (int, []any, error) {
	status, out, err := a.ask(ctx, session(id)+"/context", map[string]any{"message": "now", "include_pending": true})
	messages, _ := out["messages"].([]any)
	return status, messages[:max(0, len(messages)-1)], err
}

func restoreUnderLoad(t *testing.T, from backedUp, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 14))
	log := &slowLog{rng: rand.New(rand.NewPCG(seed, 15))}
	l, err := net.Listen("tcp", freeAddress(t))
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, stop := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	go func() {
		exited <- run(ctx, []string{"serve", "--verbose", "--data-dir", dataDir(t), "--listen", address, "--roles", "api,context,eraser"}, io.Discard, log)
	}()
	defer func() {
		log.slow.Store(false)
		stop()
		assert.Equal(t, exitDone, <-exited, "%s", log)
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, log)
		}
	}()
	p := &process{url: "http://" + address, log: &syncBuffer{}}
	p.waitReady(t)
	for i := range restoredSessions {
		require.Empty(t, p.context(t, fmt.Sprint("s", i)))
	}
	w := &witness{t: t, answers: map[string]int{}}
	asking, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 5 {
		reads := rand.New(rand.NewPCG(seed, uint64(100+i)))
		all.Go(func() { w.read(asking, newAsker(p.url, i%2 == 0), reads) })
	}
	for i := range 2 {
		all.Go(func() {
			w.write(asking, newAsker(p.url, i == 0), fmt.Sprint("w", i), func() bool { return strings.Contains(log.String(), "a backup is being restored") })
		})
	}
	time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
	log.slow.Store(true)
	code, _, errs := said(t, "restore", from.dir, "--erasures", from.erasures, "--url", p.url)
	restored := code == exitDone
	if restored {
		w.restored.Store(true)
	} else {
		require.Contains(t, errs, "log_not_empty")
	}
	p.waitReady(t)
	log.slow.Store(false)
	time.Sleep(50*time.Millisecond + time.Duration(rng.Int64N(int64(50*time.Millisecond))))
	end()
	all.Wait()
	log.slow.Store(false)
	require.NotContains(t, log.String(), "begun anew", "the server was not held while its streams were replaced")
	for i := range restoredSessions {
		want := exchange(2)
		if !restored {
			want = []any{}
		}
		status, got, err := newAsker(p.url, false).history(ctx, fmt.Sprint("s", i))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.ElementsMatch(t, want, got)
	}
	for _, id := range w.acknowledged {
		_, got, err := newAsker(p.url, false).history(ctx, id)
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

func (w *witness) read(ctx context.Context, a asker, rng *rand.Rand) {
	for ctx.Err() == nil {
		id, want := fmt.Sprint("s", rng.IntN(restoredSessions)), 4
		if rng.IntN(restoredSessions) == 0 {
			id, want = "gone", 0
		}
		after := w.restored.Load()
		status, got, err := a.history(ctx, id)
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

func (w *witness) write(ctx context.Context, a asker, name string, begun func() bool) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprint(name, "-", i)
		if begun() {
			status, _, err := a.ask(ctx, session(id)+"/turns", map[string]any{"request_id": "r", "question_neutral": "q"})
			if err == nil && status == http.StatusCreated {
				w.mu.Lock()
				w.acknowledged = append(w.acknowledged, id)
				w.mu.Unlock()
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// What the server took in is held against the manifest before it is served.
func TestARestoreThatTookInLessIsNotServedAsWhole(t *testing.T) {
	t.Parallel()
	from := takeBackup(t)
	name := filepath.Join(from.dir, "manifest.json")
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	events := regexp.MustCompile(`"events": (\d+)`).FindSubmatch(raw)
	require.NotNil(t, events)
	n, err := strconv.Atoi(string(events[1]))
	require.NoError(t, err)
	raw = bytes.Replace(raw, events[0], fmt.Appendf(nil, `"events": %d`, n+1), 1)
	require.NoError(t, os.WriteFile(name, raw, 0o600))
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	code, _, errs := said(t, "restore", from.dir, "--url", p.url)
	require.Equal(t, exitFailed, code, errs)
	p.says(t, fmt.Sprintf("holds %d events", n))
}

// The number of replicas is changed under readers and writers that don't pause: each reader is shown all that was
// acknowledged before it asked, or 503.
func TestReplicasChangeUnderReadersThatDontPause(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	env := []string{"TURNLEDGER_NATS_URL=" + strings.Join(c.URLs(), ","), "TURNLEDGER_NATS_LISTEN="}
	p := start(t, env, "serve", "--roles", "api,context")
	rounds := 1
	if long() {
		rounds = 20
	}
	var acknowledged [3]atomic.Int64
	var shown atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range acknowledged {
		id := fmt.Sprint("s", i)
		all.Go(func() {
			a := newAsker(p.url, true)
			for n := 0; ctx.Err() == nil; n++ {
				status, _, err := a.ask(ctx, session(id)+"/turns", map[string]any{"request_id": fmt.Sprint("r", n), "question_neutral": "q"})
				if err == nil && status == http.StatusCreated {
					acknowledged[i].Add(1)
				}
			}
		})
		all.Go(func() {
			a := newAsker(p.url, i%2 == 0)
			for ctx.Err() == nil {
				least := min(acknowledged[i].Load(), 20)
				status, got, err := a.history(ctx, id)
				if err == nil && status == http.StatusOK {
					shown.Add(1)
					assert.GreaterOrEqual(t, int64(len(got)), least, "%s lacks what was acknowledged", id)
				}
			}
		})
	}
	for range rounds {
		for _, n := range []string{"3", "1"} {
			code, _, errs := said(t, "streams", "apply", "--replicas", n, "--url", p.url)
			require.Equal(t, exitDone, code, errs)
		}
	}
	stop()
	all.Wait()
	require.Positive(t, shown.Load())
	for i := range acknowledged {
		require.Positive(t, acknowledged[i].Load())
	}
}
