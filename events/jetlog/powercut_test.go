//go:build linux

package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/cutfs"
)

// TestPowerCutLosesNothingAcknowledged is the proof of the durability gate (DESIGN §3): whatever was
// acknowledged, or shown by a gated tail, is there after the power was cut at any moment.
func TestPowerCutLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	seeds, lives := int64(5), 4
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		seeds, lives = 50, 5
	}
	cuts, promised := 0, 0
	for seed := range seeds {
		h := newHistory(t, seed, embedded.Group)
		require.NoError(t, h.run(t, lives), "seed %d, %+v", seed, h.plan)
		cuts, promised = cuts+h.cuts, promised+h.promises
	}
	t.Logf("power cuts: seeds 0 to %d, %d cuts, %d events acknowledged, found loss 0", seeds-1, cuts, promised)
}

// TestPowerCutFindsLossWithoutGate shows that the test above can fail.
func TestPowerCutFindsLossWithoutGate(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		h := newHistory(t, seed, embedded.None)
		if err := h.run(t, 2); errors.Is(err, errLost) {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("no loss found without the gate: the power-cut test proves nothing")
}

var errLost = errors.New("acknowledged event lost")

// plan is what a history's seed says it does.
type plan struct {
	sync        embedded.Sync
	disk        cutfs.Options
	timer       time.Duration // the server's sync timer, which compacts; 0: as Turnledger starts it
	smallBlocks bool          // 32 kB instead of 8 MiB, in the first life
	erase       bool
	compact     bool
	purge       bool
}

func newPlan(seed int64, sync embedded.Sync) plan {
	p := plan{sync: sync, smallBlocks: true}
	switch seed % 5 {
	case 1:
		p.erase = true
	case 2:
		p.erase, p.compact, p.timer = true, true, 10*time.Millisecond
	case 3:
		p.erase, p.smallBlocks = true, false
	case 4:
		p.erase, p.compact, p.purge, p.timer = true, true, true, 10*time.Millisecond
	}
	if os.Getenv("TL_DISK") == "ext4" {
		p.disk = cutfs.Options{FsyncFileMakesNewNameDurable: true, OrderedMetadata: true, ReplacingRenameSyncsData: true}
	}
	if os.Getenv("TL_DISK") == "rename" {
		p.disk = cutfs.Options{ReplacingRenameSyncsData: true}
	}
	if os.Getenv("TL_TIMER") != "" {
		p.timer, _ = time.ParseDuration(os.Getenv("TL_TIMER"))
	}
	if os.Getenv("TL_NOCOMPACT") != "" {
		p.compact, p.purge = false, false
	}
	return p
}

// history is one log through several lives, each ended by a cut.
type history struct {
	plan plan
	seed int64
	rng  *rand.Rand

	image    *cutfs.Image
	cuts     int
	promises int
	made     int // requests so far, over all lives

	mu       sync.Mutex
	promised map[uint64]events.Recorded // by sequence; only ID, SessionID and Body are set
	loose    map[uint64]bool            // deletion was asked for: may be gone
	purged   map[string]uint64          // by session: all before this sequence may be gone
}

func newHistory(_ *testing.T, seed int64, sync embedded.Sync) *history {
	return &history{
		plan: newPlan(seed, sync), seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 2)), //nolint:gosec // reproducible
		promised: map[uint64]events.Recorded{}, loose: map[uint64]bool{}, purged: map[string]uint64{},
	}
}

// run lives and dies, and then looks a last time and appends.
func (h *history) run(t *testing.T, lives int) error {
	for n := range lives {
		if err := h.live(t, n); err != nil {
			return fmt.Errorf("life %d: %w", n, err)
		}
	}
	dir, m := h.mount(t)
	defer unmount(t, m)
	log, err := h.open(t.Context(), dir)
	if err != nil {
		return err
	}
	defer log.stop()
	if err := h.check(t.Context(), log); err != nil {
		return err
	}
	return h.append(t.Context(), log, "s0", 1)
}

func (h *history) mount(t *testing.T) (dir string, m *cutfs.FS) {
	dir = t.TempDir()
	var err error
	if h.image == nil {
		m, err = cutfs.Mount(dir, h.plan.disk)
	} else {
		m, err = h.image.Mount(dir)
	}
	require.NoError(t, err)
	return dir, m
}

func unmount(t *testing.T, m *cutfs.FS) { require.NoError(t, m.Unmount()) }

// live starts the server on what the last cut left, looks whether all is there, loads it, and cuts the
// power at a seeded change: mostly under load, sometimes while it starts.
func (h *history) live(t *testing.T, n int) error {
	dir, m := h.mount(t)
	defer unmount(t, m)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if n > 0 && h.rng.IntN(4) == 0 {
		m.CutAfter(1 + h.rng.Int64N(60))
	}
	go func() {
		select {
		case <-m.Off():
			stop()
		case <-ctx.Done():
		}
	}()
	// What a server says whose disk is off counts for nothing: it takes an I/O error for "no message".
	if err := h.loadUntil(ctx, m, dir); !off(m) {
		return fmt.Errorf("it ended before the cut: %w", err)
	}
	h.image = m.Cut(h.seed*100 + int64(n))
	h.cuts++
	return nil
}

func off(m *cutfs.FS) bool {
	select {
	case <-m.Off():
		return true
	default:
		return false
	}
}

// loadUntil runs the server, and has it cut under load.
func (h *history) loadUntil(ctx context.Context, m *cutfs.FS, dir string) error {
	log, err := h.open(ctx, dir)
	if err != nil {
		return err
	}
	defer log.stop()
	if err := h.check(ctx, log); err != nil {
		return err
	}
	h.arm(m)
	h.load(ctx, log)
	return ctx.Err()
}

// arm sets the moment of the cut: any change, or, every other time, one within a few changes of a block
// being rewritten: by an erasure ("N.blk.tmp" becomes "N.blk"), or by a compaction ("N.new" does).
func (h *history) arm(m *cutfs.FS) {
	suffix := ""
	switch {
	case h.rng.IntN(2) == 0:
	case h.plan.compact:
		suffix = ".new"
	case h.plan.erase:
		suffix = ".blk.tmp"
	}
	m.CutAfter(1 + h.rng.Int64N(64<<h.rng.IntN(8)))
	if suffix == "" {
		return
	}
	m.CutAfter(10_000)
	m.CutAtRename(func(from, to string) bool {
		return strings.HasSuffix(from, suffix) && strings.HasSuffix(to, ".blk")
	}, 1+h.rng.IntN(8), h.rng.Int64N(6))
}

// openLog is a running server with its log.
type openLog struct {
	*jetlog.Log
	stream jetstream.Stream
	stop   func()
}

func (h *history) open(ctx context.Context, dir string) (*openLog, error) {
	nc, gateDir, stop, err := h.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	l, err := h.openOn(ctx, nc, gateDir)
	if err != nil {
		stop()
		return nil, err
	}
	l.stop = stop
	return l, nil
}

func (h *history) openOn(ctx context.Context, nc *nats.Conn, gateDir string) (*openLog, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if h.image == nil && h.plan.smallBlocks {
		if err := makeSmallBlocks(ctx, js); err != nil {
			return nil, err
		}
	}
	log, err := jetlog.Open(ctx, nc, jetlog.Config{GateDir: gateDir})
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, events.StreamName(0))
	return &openLog{Log: log, stream: stream}, err
}

// makeSmallBlocks makes the stream with blocks of 32 kB before the log opens it. The server derives
// their size from the stream's size limit when it makes or recovers it, and does not look again when
// the limit goes away.
func makeSmallBlocks(ctx context.Context, js jetstream.JetStream) error {
	cfg := jetstream.StreamConfig{
		Name: events.StreamName(0), Subjects: events.StreamSubjects(0, 1), MaxBytes: 100_000,
		AllowDirect: true, AllowAtomicPublish: true, Metadata: map[string]string{"turnledger.partitions": "1"},
	}
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		return err
	}
	cfg.MaxBytes = -1
	_, err := js.UpdateStream(ctx, cfg)
	return err
}

// start starts the server as Turnledger does, or with the plan's faster timer.
func (h *history) start(ctx context.Context, dir string) (nc *nats.Conn, gateDir string, stop func(), err error) {
	if h.plan.timer == 0 {
		s, err := embedded.Start(ctx, embedded.Config{Dir: dir, Sync: h.plan.sync})
		if err != nil {
			return nil, "", nil, err
		}
		nc, err = s.Connect()
		return nc, s.GateDir(), func() { nc.Close(); s.Stop() }, err
	}
	ns, err := server.NewServer(&server.Options{
		ServerName: "turnledger", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		MaxPayload: embedded.MaxPayload, SyncInterval: h.plan.timer,
	})
	if err != nil {
		return nil, "", nil, err
	}
	ns.Start()
	shutdown := func() { ns.Shutdown(); ns.WaitForShutdown() }
	if !ns.JetStreamEnabled() {
		shutdown()
		return nil, "", nil, errors.New("JetStream did not start")
	}
	nc, err = nats.Connect("", nats.InProcessServer(ns), nats.MaxReconnects(-1))
	if err != nil {
		shutdown()
		return nil, "", nil, err
	}
	if h.plan.sync == embedded.Group {
		gateDir = dir
	}
	return nc, gateDir, func() { nc.Close(); shutdown() }, nil
}

const writers = 6

// load writes, reads and deletes until the cut, which ends ctx.
func (h *history) load(ctx context.Context, log *openLog) {
	var wg sync.WaitGroup
	for w := range writers {
		rng := h.fork()
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = h.append(ctx, log, fmt.Sprintf("s%d", w), 1+max(0, rng.IntN(8)-4))
			}
		})
	}
	jobs := []func(context.Context, *openLog, *rand.Rand){h.follow}
	if h.plan.erase {
		jobs = append(jobs, h.eraseSome)
	}
	if h.plan.compact {
		jobs = append(jobs, h.deleteSome)
	}
	if h.plan.purge {
		jobs = append(jobs, h.purgeSome)
	}
	for _, job := range jobs {
		rng := h.fork()
		wg.Go(func() {
			for ctx.Err() == nil {
				job(ctx, log, rng)
			}
		})
	}
	wg.Wait()
}

func (h *history) fork() *rand.Rand { return rand.New(rand.NewPCG(h.rng.Uint64(), h.rng.Uint64())) } //nolint:gosec // reproducible

// append appends n events at once and, when they are acknowledged, holds the log to them.
func (h *history) append(ctx context.Context, log *openLog, session string, n int) error {
	facts := h.facts(session, n)
	ack, err := log.Append(ctx, jetlog.Append{Facts: facts})
	if err == nil {
		err = log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return err
	}
	for i, f := range facts {
		env, err := events.Encode(f, time.Time{})
		if err != nil {
			return err
		}
		seq := ack.Position.Seq - uint64(n-1-i) //nolint:gosec // n > i
		h.promise(seq, events.Recorded{ID: f.EventID(), SessionID: session, Body: env.Body})
	}
	return nil
}

func (h *history) facts(session string, n int) []events.Fact {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := make([]events.Fact, n)
	for i := range facts {
		h.made++
		text := strings.Repeat("text ", 20+h.made*7919%280)
		facts[i] = started(session, fmt.Sprint(h.made), text)
	}
	return facts
}

func (h *history) promise(seq uint64, e events.Recorded) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.promised[seq]; !known {
		h.promised[seq] = e
		h.promises++
	}
}

// follow holds the log to what a gated tail shows.
func (h *history) follow(ctx context.Context, log *openLog, _ *rand.Rand) {
	tail, err := log.Tail(ctx, 0, 0, jetlog.TailOptions{})
	if err != nil {
		return
	}
	defer tail.Close()
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return
		}
		for _, m := range batch {
			e := m.Recorded()
			h.promise(e.Position.Seq, events.Recorded{ID: e.ID, SessionID: e.SessionID, Body: e.Body})
		}
	}
}

// pick gives a random promised sequence, 0 if there is none.
func (h *history) pick(rng *rand.Rand) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.promised) == 0 {
		return 0
	}
	return 1 + rng.Uint64N(uint64(len(h.promised)))
}

func (h *history) loosen(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loose[seq] = true
}

func (h *history) eraseSome(ctx context.Context, log *openLog, rng *rand.Rand) {
	if seq := h.pick(rng); seq > 0 {
		h.loosen(seq)
		_ = log.stream.SecureDeleteMsg(ctx, seq)
	}
}

// deleteSome deletes most of a block's worth of events, so that the server compacts it.
func (h *history) deleteSome(ctx context.Context, log *openLog, rng *rand.Rand) {
	from := h.pick(rng)
	for seq := from; seq > 0 && seq < from+40 && ctx.Err() == nil; seq++ {
		if rng.IntN(5) > 0 {
			h.loosen(seq)
			_ = log.stream.DeleteMsg(ctx, seq)
		}
	}
}

// purgeSome purges a session up to an event.
func (h *history) purgeSome(ctx context.Context, log *openLog, rng *rand.Rand) {
	seq := h.pick(rng)
	h.mu.Lock()
	session := h.promised[seq].SessionID
	h.purged[session] = max(h.purged[session], seq)
	h.mu.Unlock()
	if session != "" && rng.IntN(20) == 0 {
		_ = log.stream.Purge(ctx, jetstream.WithPurgeSubject(events.SessionSubject(session)), jetstream.WithPurgeSequence(seq))
	}
}

// check looks for every event that was promised: the same bytes at the same place.
func (h *history) check(ctx context.Context, log *openLog) error {
	found := map[uint64]events.Recorded{}
	for w := range writers {
		for e, err := range log.Session(ctx, fmt.Sprintf("s%d", w), 0, math.MaxUint64) {
			if err != nil {
				return err
			}
			found[e.Position.Seq] = e
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := 0
	var first error
	for seq, want := range h.promised {
		got, ok := found[seq]
		switch {
		case !ok && (h.loose[seq] || seq < h.purged[want.SessionID]):
			delete(h.promised, seq)
		case !ok || got.ID != want.ID || string(got.Body) != string(want.Body):
			lost++
			first = fmt.Errorf("%w: %s at %d (there: %q), %d of %d in all", errLost, want.ID, seq, got.ID, lost, len(h.promised))
		}
	}
	maps.DeleteFunc(h.loose, func(seq uint64, _ bool) bool { _, ok := found[seq]; return !ok })
	return first
}
