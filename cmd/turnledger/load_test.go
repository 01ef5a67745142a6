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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// eachSeed runs a test with 200 seeds in the long form, with two in the short one, or with that of TURNLEDGER_SEED.
func eachSeed(t *testing.T, test func(t *testing.T, seed uint64)) {
	first, n := uint64(1), uint64(2)
	if stack.Long() {
		n = 200
	}
	if s, err := strconv.ParseUint(os.Getenv("TURNLEDGER_SEED"), 10, 64); err == nil {
		first, n = s, 1
	}
	for i := range n {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) { test(t, first+i) })
	}
}

// slowLog takes lines, each of them in its own time while slow is set. Most lines about requests it takes at once, so
// that readers and writers are not as slow as the steps of the server.
type slowLog struct {
	slow atomic.Bool
	mu   sync.Mutex
	rng  *rand.Rand
	buf  bytes.Buffer
	to   io.Writer // takes the lines, where it is not nil
}

func newSlowLog(seed uint64) *slowLog { return &slowLog{rng: rand.New(rand.NewPCG(seed, 15))} }

func (l *slowLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	often := 2
	if bytes.Contains(b, []byte("msg=request ")) {
		often = 20
	}
	if l.slow.Load() && l.rng.IntN(often) == 0 {
		<-time.After(time.Duration(l.rng.Int64N(int64(60 * time.Millisecond))))
	}
	if l.to != nil {
		return l.to.Write(b)
	}
	return l.buf.Write(b)
}

func (l *slowLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// slowServer is a server in the test's own process: only there does a step that logs wait for a slow log.
type slowServer struct {
	*stack.Process
	t    *testing.T
	log  *slowLog
	args []string
	stop func()
}

// slowArgs are the arguments of a server that logs all that it does. With an odd seed its view holds too little of a
// session, so that readers are answered from the log.
func slowArgs(seed uint64, args ...string) []string {
	args = append([]string{"serve", "--verbose", "--roles", "api,context,eraser"}, args...)
	if seed%2 == 1 {
		args = append(args, "--session-max-turns", "1")
	}
	return args
}

// serveSlowly starts a server and waits until it is ready.
func serveSlowly(t *testing.T, seed uint64, args ...string) *slowServer {
	address := stack.FreeAddress(t)
	s := &slowServer{
		t: t, log: newSlowLog(seed), Process: &stack.Process{URL: "http://" + address, Log: &printed.Buffer{}},
		args: append(slowArgs(seed, args...), "--listen", address),
	}
	s.start()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, s.log)
		}
	})
	s.WaitReady(t)
	return s
}

func (s *slowServer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	go func() { exited <- run(ctx, s.args, io.Discard, s.log) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		assert.Equal(s.t, exitDone, <-exited, "%s", s.log)
	})
}

// recordSessions records the sessions of a stack.Backup.
func recordSessions(t *testing.T, p *stack.Process) {
	for i := range stack.BackupSessions {
		p.RecordExchange(t, fmt.Sprint("s", i), 0)
		p.RecordExchange(t, fmt.Sprint("s", i), 1)
	}
}

// witness keeps what readers and writers were told, who ask without pause.
type witness struct {
	t    *testing.T
	seed uint64
	ids  string // begins the names of the sessions that the writers begin
	// before is how many messages a session shows before the change: 0, or the 4 that it shows after it.
	before int
	// changed: the change has ended, or a reader was shown what a session shows after it.
	changed atomic.Bool
	// restarts: the server ends meanwhile, and connections break off.
	restarts bool

	mu           sync.Mutex
	answers      map[string]int
	acknowledged map[string][]string // questions by session

	end func()
	all sync.WaitGroup
}

// ask begins to ask the servers at urls. The writers write when begun says so.
func (w *witness) ask(begun func() bool, urls ...string) {
	w.answers, w.acknowledged = map[string]int{}, map[string][]string{}
	ctx, end := context.WithCancel(context.Background())
	w.end = func() {
		end()
		w.all.Wait()
	}
	w.t.Cleanup(w.end)
	for i := range 5 {
		rng := rand.New(rand.NewPCG(w.seed, uint64(100+i)))
		w.all.Go(func() { w.read(ctx, stack.NewCaller(urls[i%len(urls)], i%2 == 0), rng) })
	}
	for i := range 2 {
		w.all.Go(func() {
			w.write(ctx, stack.NewCaller(urls[i%len(urls)], i == 0), fmt.Sprint(w.ids, "w", i), begun)
		})
	}
}

func (w *witness) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[what]++
}

// counted returns how often something was told.
func (w *witness) counted(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers[what]
}

// session draws a session: with a part of what was acknowledged in it, if a writer began it; else with the number of
// messages that it shows after the change.
func (w *witness) session(rng *rand.Rand) (id string, least []string, want int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := rng.IntN(2 * stack.BackupSessions); {
	case n < stack.BackupSessions:
		return fmt.Sprint("s", n), nil, 4
	case n > stack.BackupSessions && len(w.acknowledged) > 0:
		for id, least = range w.acknowledged { // which of them comes first is drawn
			return id, slices.Clone(least), 0
		}
	}
	return "gone", nil, 0
}

func (w *witness) read(ctx context.Context, a *stack.Process, rng *rand.Rand) {
	for ctx.Err() == nil {
		id, least, want := w.session(rng)
		after := w.changed.Load()
		status, got, err := a.ReadContext(ctx, id)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.count("broken")
			if !w.restarts {
				assert.NoError(w.t, err, "a connection is broken off")
			}
		case status == http.StatusServiceUnavailable:
			w.count("503")
		case status != http.StatusOK && status != http.StatusGone:
			assert.Fail(w.t, "another answer", "%d", status)
		case least != nil:
			w.count("acknowledged")
			assert.Subset(w.t, questions(got), least, "%s lacks what was acknowledged", id)
		case len(got) == want && want > 0:
			w.changed.Store(true)
			w.count("after")
		case len(got) == min(w.before, want):
			w.count("before")
			assert.False(w.t, after && want > 0, "%s as before, after the change", id)
		default:
			assert.Fail(w.t, "a history of neither state", "%s: %v", id, got)
		}
	}
}

// questions returns the texts of messages.
func questions(messages []any) (out []string) {
	for _, m := range messages {
		out = append(out, m.(map[string]any)["content"].(string))
	}
	return out
}

// written is how many turns a writer writes into a session: a context shows them all.
const written = 8

func (w *witness) write(ctx context.Context, a *stack.Process, name string, begun func() bool) {
	for i := 0; ctx.Err() == nil; i++ {
		if begun() {
			id, question := fmt.Sprint(name, "-", i/written), fmt.Sprint("q", i%written)
			status, _, err := a.Call(ctx, http.MethodPost, stack.SessionPath(id)+"/turns",
				map[string]any{"request_id": question, "question_neutral": question})
			if err == nil && status == http.StatusCreated {
				w.mu.Lock()
				w.answers["written"]++
				w.acknowledged[id] = append(w.acknowledged[id], question)
				w.mu.Unlock()
			}
		}
		<-time.After(time.Millisecond)
	}
}

// goOn waits until more is read and written.
func (w *witness) goOn() {
	for _, what := range []string{"after", "written"} {
		from := w.counted(what)
		hang.Until(w.t, func() bool { return w.counted(what) > from+2 },
			"%s: nothing goes on", what)
	}
}

// check reads all sessions once more, after the readers and writers have ended. A slow server may still say 503, and
// then is asked again.
func (w *witness) check(url string, want []any) {
	w.end()
	read := func(id string) (got []any) {
		hang.Until(w.t, func() bool {
			status, messages, err := stack.NewCaller(url, false).ReadContext(w.t.Context(), id)
			got = messages
			return assert.NoError(w.t, err) && status != http.StatusServiceUnavailable &&
				assert.Equal(w.t, http.StatusOK, status)
		}, "%s is not read", id)
		return got
	}
	for i := range stack.BackupSessions {
		require.ElementsMatch(w.t, want, read(fmt.Sprint("s", i)))
	}
	for id, least := range w.acknowledged {
		require.Subset(w.t, questions(read(id)), least, "%s was acknowledged", id)
	}
	w.t.Logf("answers %v, of %d sessions that were begun", w.answers, len(w.acknowledged))
}

// moment waits up to a time, drawn.
func moment(rng *rand.Rand, most time.Duration) { <-time.After(time.Duration(rng.Int64N(int64(most)))) }

// drifts are what others may have changed of a stream, and turnledger streams apply takes back.
var drifts = []func(*jetstream.StreamConfig){
	func(c *jetstream.StreamConfig) { c.AllowDirect = false },
	func(c *jetstream.StreamConfig) { c.Subjects = []string{"elsewhere"} },
	func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression },
	func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 },
	func(c *jetstream.StreamConfig) { c.AllowRollup, c.Duplicates = true, time.Second },
}

// The streams are changed, and changed back with turnledger streams apply, under readers and writers who don't pause,
// and each step that is logged takes its own time, drawn from a seed. Each reader is told all that was acknowledged, or
// 503.
func TestStreamsThatChangeUnderLoadAreSeenWholeOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, func(t *testing.T, seed uint64) {
		t.Parallel()
		address := stack.FreeAddress(t)
		s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t), "--nats-listen", address, "--sync", "always")
		recordSessions(t, s.Process)
		nc := must.Get(nats.Connect("nats://" + address))(t)
		t.Cleanup(nc.Close)
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		rng := rand.New(rand.NewPCG(seed, 14))
		s.log.slow.Store(true)
		for _, i := range rng.Perm(len(drifts)) {
			drift(t, nc, drifts[i])
			moment(rng, 50*time.Millisecond)
			applyStreams(t, s.Process)
			moment(rng, 50*time.Millisecond)
		}
		s.log.slow.Store(false)
		w.goOn()
		w.check(s.URL, stack.Exchanges(2))
	})
}

// applyStreams runs turnledger streams apply, and again where slow servers, which may have no leader meanwhile, did not
// answer in time.
func applyStreams(t *testing.T, p *stack.Process, args ...string) {
	for began := time.Now(); ; {
		code, _, errs := p.Run(t, append([]string{"streams", "apply"}, args...)...)
		if code == exitDone {
			return
		}
		require.Contains(t, errs, "log_unavailable")
		require.Less(t, time.Since(began), hang.Limit, errs)
	}
}

// drift changes the stream of the only partition.
func drift(t *testing.T, nc *nats.Conn, change func(*jetstream.StreamConfig)) {
	js := must.Get(jetstream.New(nc))(t)
	stream := must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
	cfg := stream.CachedInfo().Config
	change(&cfg)
	must.Get(js.UpdateStream(t.Context(), cfg))(t)
}

// slowLines has a NATS server write its log to a slow one.
type slowLines struct{ *slowLog }

func (l slowLines) printLine(format string, v ...any) { _, _ = fmt.Fprintf(l, format+"\n", v...) }

func (l slowLines) Noticef(format string, v ...any) { l.printLine(format, v...) }
func (l slowLines) Warnf(format string, v ...any)   { l.printLine(format, v...) }
func (l slowLines) Fatalf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Errorf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Debugf(format string, v ...any)  { l.printLine(format, v...) }
func (l slowLines) Tracef(format string, v ...any)  { l.printLine(format, v...) }

// The streams of a cluster get replicas, and lose them again, under readers and writers of two servers who don't pause:
// one of the servers is told, and the other is not.
func TestReplicasThatChangeUnderLoadAreSeenAsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	var logs []*slowLog
	for i, n := range c.Servers {
		logs = append(logs, newSlowLog(uint64(i)))
		n.SetLoggerV2(slowLines{logs[i]}, true, false, false)
	}
	var record sync.Once
	eachSeed(t, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 14))
		nats := []string{"--nats-url", strings.Join(c.URLs(), ",")}
		asked, other := serveSlowly(t, seed, nats...), serveSlowly(t, seed+1000, nats...)
		record.Do(func() { recordSessions(t, asked.Process) })
		w := &witness{t: t, seed: seed, before: 4, ids: fmt.Sprint("seed", seed)}
		w.ask(func() bool { return true }, asked.URL, other.URL)
		w.goOn()
		slow := func(is bool) {
			for _, l := range append(logs, asked.log, other.log) {
				l.slow.Store(is)
			}
		}
		slow(true)
		defer slow(false)
		for _, n := range []string{"3", "1"} {
			moment(rng, 100*time.Millisecond)
			applyStreams(t, asked.Process, "--replicas", n)
		}
		slow(false)
		w.goOn()
		w.check(other.URL, stack.Exchanges(2))
	})
}

// An outside NATS is started anew on its data under readers and writers who don't pause.
func TestANATSThatStartsAnewUnderLoadIsSeenAsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		address, dir, log := stack.FreeAddress(t), t.TempDir(), newSlowLog(seed)
		stop := natsAt(t, address, dir, log)
		t.Cleanup(func() { stop() })
		s := serveSlowly(t, seed, "--nats-url", "nats://"+address)
		recordSessions(t, s.Process)
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		s.log.slow.Store(true)
		log.slow.Store(true)
		for range 2 {
			moment(rng, 50*time.Millisecond)
			stop()
			moment(rng, 100*time.Millisecond)
			stop = natsAt(t, address, dir, log)
			w.goOn()
		}
		log.slow.Store(false)
		s.log.slow.Store(false)
		w.check(s.URL, stack.Exchanges(2))
	})
}

func natsAt(t *testing.T, address, dir string, log *slowLog) (stop func()) {
	host, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port := must.Get(strconv.Atoi(text))(t)
	n := must.Get(server.NewServer(&server.Options{
		ServerName: "outside", Host: host, Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		SyncAlways: true, MaxPayload: 8 << 20,
	}))(t)
	n.SetLoggerV2(slowLines{log}, true, false, false)
	n.Start()
	return func() {
		n.Shutdown()
		n.WaitForShutdown()
	}
}

// A server is stopped and started again on its data under readers and writers who don't pause.
func TestAServerThatStartsAnewUnderLoadShowsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t))
		recordSessions(t, s.Process)
		w := &witness{t: t, seed: seed, before: 4, restarts: true}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		s.log.slow.Store(true)
		for range 2 {
			moment(rng, 100*time.Millisecond)
			s.stop()
			s.start()
			w.goOn()
		}
		s.log.slow.Store(false)
		w.check(s.URL, stack.Exchanges(2))
	})
}

// Readers and writers ask without pause while a backup becomes the log of the server that they ask, and each step of
// the server takes its own time, drawn from a seed: all that the server does on the way is logged, and the log is slow.
// Each reader is told the state of before, 503 or the restored state, and never again the former after the latter.
// What was erased since the backup is shown to nobody, and every write that was acknowledged is in the log that stays.
func TestARestoreUnderLoadIsSeenAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	from := stack.TakeBackup(t)
	eachSeed(t, func(t *testing.T, seed uint64) { restoreUnderLoad(t, from, seed) })
}

func restoreUnderLoad(t *testing.T, from stack.Backup, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 14))
	s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t))
	w := &witness{t: t, seed: seed}
	w.ask(func() bool { return strings.Contains(s.log.String(), "a backup is being restored") }, s.URL)
	moment(rng, 50*time.Millisecond)
	s.log.slow.Store(true)
	code, _, errs := s.Run(t, "restore", from.Dir, "--erasures", from.Erasures)
	restored, want := code == exitDone, []any{}
	if restored {
		w.changed.Store(true)
		want = stack.Exchanges(2)
	} else {
		require.Contains(t, errs, "log_not_empty")
	}
	s.WaitReady(t)
	s.log.slow.Store(false)
	<-time.After(50 * time.Millisecond)
	moment(rng, 50*time.Millisecond)
	w.check(s.URL, want)
	require.NotContains(t, s.log.String(), "begun anew", "the server was not held while its streams were replaced")
	t.Logf("restored: %v", restored)
}
