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

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// What group and always need of a file system beyond POSIX. Group: the server's compaction renames a
// rewritten block into place before it syncs it (filestore.go, compactWithFloor). Always: the server
// syncs a new block, but not the folder that the block is new in.
var (
	posixDisk  = cutfs.Options{OutliveCut: true}
	groupDisk  = cutfs.Options{OutliveCut: true, ReplacingRenameSyncsData: true}
	alwaysDisk = cutfs.Options{OutliveCut: true, FsyncFileMakesNewNameDurable: true}
)

// TestPowerCutLosesNothingAcknowledged is the proof of the durability gate (docs/design.md#the-durability-gate):
// what was
// acknowledged, or shown by a gated tail, is there after the power was cut, at whatever moment.
func TestPowerCutLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	survive(t, embedded.Group, groupDisk, 20, 250)
}

func TestPowerCutLosesNothingAcknowledgedWithSyncAlways(t *testing.T) {
	t.Parallel()
	survive(t, embedded.Always, alwaysDisk, 4, 50)
}

// The two tests below show that those above can fail.

func TestPowerCutFindsLossWithoutGate(t *testing.T) {
	t.Parallel()
	findLoss(t, 20, func(seed int64) *history { return newHistory(seed, plans[0], embedded.None, posixDisk) })
}

// TestPowerCutFindsUnsyncedCompaction: on a file system that may keep a rename without the data the
// gate does lose events. If no loss is found any more, the server was mended: groupDisk may go.
func TestPowerCutFindsUnsyncedCompaction(t *testing.T) {
	t.Parallel()
	findLoss(t, 100, func(seed int64) *history { return newHistory(seed, compacting, embedded.Group, posixDisk) })
}

func survive(t *testing.T, mode embedded.Sync, disk cutfs.Options, cuts, torture int) {
	reach := 7
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		cuts, reach = torture, 8
	}
	cut, promised, seed := 0, 0, int64(0)
	for ; cut < cuts; seed++ {
		p := plans[int(seed)%len(plans)]
		h := newHistory(seed, p, mode, disk)
		h.draws, h.reach = 3, reach
		// A test of its own, at the end of which its disks go.
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { require.NoError(t, h.run(t), "%+v", p) }) {
			return
		}
		cut, promised = cut+p.lives, promised+h.promises
	}
	t.Logf("power cuts, sync %s: seeds 0 to %d, %d cuts, %d events acknowledged, found loss 0", mode, seed-1, cut,
		promised)
}

func findLoss(t *testing.T, seeds int64, history func(seed int64) *history) {
	for seed := range seeds {
		h := history(seed)
		h.draws, h.reach = 8, 7
		err := h.run(t)
		if errors.Is(err, errLost) {
			t.Logf("seed %d: %v", seed, err)
			return
		}
		require.NoError(t, err, "seed %d", seed)
	}
	t.Fatalf("no loss found in %d seeds: the power-cut test proves nothing", seeds)
}

var errLost = errors.New("acknowledged event lost")

// plan is what happens between the cuts.
type plan struct {
	lives       int           // how often the power is cut
	smallBlocks bool          // 32 kB instead of 8 MiB, in the first life
	timer       time.Duration // the server's sync timer, which compacts; 0: as Turnledger starts it
	erase       bool          // secure deletes
	compact     bool          // plain deletes of most of a block
	purge       bool          // purges of a session's beginning
	midRewrite  bool          // cut only when a block is being rewritten
}

var compacting = plan{lives: 1, smallBlocks: true, compact: true, timer: 10 * time.Millisecond, midRewrite: true}

var plans = []plan{
	{lives: 3, smallBlocks: true},
	{lives: 3, smallBlocks: true, erase: true},
	{lives: 1, smallBlocks: true, erase: true, compact: true, timer: 10 * time.Millisecond},
	{lives: 3, erase: true},
	compacting,
	{lives: 1, smallBlocks: true, erase: true, compact: true, purge: true, timer: 10 * time.Millisecond},
	{lives: 2, smallBlocks: true, erase: true, midRewrite: true},
}

// history is one log through several lives, each ended by a cut.
type history struct {
	plan
	seed int64
	mode embedded.Sync
	disk cutfs.Options
	rng  *rand.Rand

	draws    int          // how many outcomes of the last cut are looked at
	reach    int          // the cut comes within 64<<(reach-1) changes
	fs       *cutfs.FS    // of the present life
	memory   string       // of the present life
	image    *cutfs.Image // what the last cut left; nil before the first
	promises int

	mu       sync.Mutex
	made     int                        // requests
	promised map[uint64]events.Recorded // by sequence; ID, SessionID and Body
	loose    map[uint64]bool            // to be deleted, so may be gone
	purged   map[string]uint64          // by session: what lies before may be gone
}

func newHistory(seed int64, p plan, mode embedded.Sync, disk cutfs.Options) *history {
	return &history{
		plan: p, seed: seed, mode: mode, disk: disk,
		rng:      rand.New(rand.NewPCG(uint64(seed), 2)),
		promised: map[uint64]events.Recorded{}, loose: map[uint64]bool{}, purged: map[string]uint64{},
	}
}

// run lives and dies, then looks at what is left.
func (h *history) run(t *testing.T) error {
	for n := range h.lives {
		if err := h.live(t, n); err != nil {
			return fmt.Errorf("life %d: %w", n, err)
		}
	}
	died := h.fs
	for n := range h.draws {
		if err := h.look(t); err != nil {
			return fmt.Errorf("draw %d of the last cut: %w", n, err)
		}
		h.image = died.Cut(h.seed*100 + int64(h.lives+n))
	}
	return nil
}

// look starts a server on the image, and appends if all is there.
func (h *history) look(t *testing.T) error {
	ctx, stop := context.WithTimeout(t.Context(), hang.Limit)
	defer stop()
	log, err := h.open(ctx, h.mount(t))
	if err != nil {
		return err
	}
	defer log.stop()
	if err := h.check(ctx, log); err != nil {
		return err
	}
	facts := h.facts(session(0), 1)
	return h.patiently(ctx, func() error {
		ack, err := log.Append(ctx, jetlog.Append{Facts: facts})
		if err != nil {
			return err
		}
		return log.Durable(ctx, ack.Position)
	})
}

// patiently asks again what a busy machine did not answer in time, until the power is cut.
func (h *history) patiently(ctx context.Context, ask func() error) error {
	for {
		if err := ask(); !errors.Is(err, jetlog.ErrUnavailable) || h.off() || ctx.Err() != nil {
			return err
		}
	}
}

// mount mounts the image, or an empty disk, for the present life.
func (h *history) mount(t *testing.T) (dir string) {
	dir = t.TempDir()
	var err error
	if h.image == nil {
		h.fs, err = cutfs.Mount(dir, h.disk)
	} else {
		h.fs, err = h.image.Mount(dir)
	}
	require.NoError(t, err)
	fs := h.fs
	t.Cleanup(func() { require.NoError(t, fs.Unmount()) })
	h.memory = natstest.Memory(t)
	return dir
}

// live starts the server on what the last cut left, looks whether all is there, loads it, and cuts the
// power at a seeded change: mostly under load, sometimes while the server starts.
func (h *history) live(t *testing.T, n int) error {
	dir := h.mount(t)
	ctx, stop := context.WithTimeout(t.Context(), hang.Limit)
	defer stop()
	if n > 0 && h.rng.IntN(4) == 0 {
		h.fs.CutAfter(1 + h.rng.Int64N(60))
	}
	err := h.loadUntil(ctx, dir)
	switch {
	case errors.Is(err, errLost):
		return err
	case !h.off():
		return fmt.Errorf("it ended before the cut: %w", err)
	}
	h.image = h.fs.Cut(h.seed*100 + int64(n))
	return nil
}

func (h *history) off() bool {
	select {
	case <-h.fs.Off():
		return true
	default:
		return false
	}
}

func (h *history) loadUntil(ctx context.Context, dir string) error {
	log, err := h.open(ctx, dir)
	if err != nil {
		return err
	}
	defer log.stop()
	if err := h.check(ctx, log); err != nil {
		return err
	}
	h.arm()
	h.load(ctx, log)
	return ctx.Err() // of a load that did not get to the cut
}

// arm sets the moment of the cut: any change, or one within a few changes of a block being rewritten, by
// an erasure ("N.blk.tmp" becomes "N.blk") or a compaction ("N.new" does).
func (h *history) arm() {
	if !h.midRewrite {
		h.fs.CutAfter(1 + h.rng.Int64N(64<<h.rng.IntN(h.reach)))
		return
	}
	h.fs.CutAfter(4000)
	h.fs.CutAtRename(func(from, to string) bool {
		return strings.HasSuffix(to, ".blk") && (strings.HasSuffix(from, ".new") || strings.HasSuffix(from, ".blk.tmp"))
	}, 1+h.rng.IntN(8), h.rng.Int64N(4))
}

// openLog is a running server and its log.
type openLog struct {
	*jetlog.Log
	stream jetstream.Stream
	stop   func()
}

func (h *history) open(ctx context.Context, dir string) (*openLog, error) {
	nc, stage, stop, err := h.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	log, err := h.openOn(ctx, nc, dir)
	if err != nil {
		stop()
		return nil, err
	}
	stage()
	log.stop = stop
	return log, nil
}

// start starts the server as Turnledger does, or with the plan's faster timer. What stages batches in memory is called
// once there is a stream. Each life has another memory: a power cut leaves nothing of it.
func (h *history) start(ctx context.Context, dir string) (nc *nats.Conn, stage, stop func(), err error) {
	if h.timer == 0 {
		s, err := embedded.Start(ctx, embedded.Config{Dir: dir, Sync: h.mode, Memory: h.memory})
		if err != nil {
			return nil, nil, nil, err
		}
		nc, err = s.Connect()
		return nc, s.StageInMemory, func() { nc.Close(); s.Stop() }, err
	}
	ns, err := server.NewServer(&server.Options{
		ServerName: "turnledger", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		MaxPayload: embedded.MaxPayload, SyncInterval: h.timer, SyncAlways: h.mode == embedded.Always,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	ns.Start()
	shutdown := func() { ns.Shutdown(); ns.WaitForShutdown() }
	if nc, err = nats.Connect("", nats.InProcessServer(ns), nats.MaxReconnects(-1)); err != nil {
		shutdown()
		return nil, nil, nil, err
	}
	return nc, func() {}, func() { nc.Close(); shutdown() }, nil
}

func (h *history) openOn(ctx context.Context, nc *nats.Conn, dir string) (*openLog, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if h.image == nil && h.smallBlocks {
		if err := makeSmallBlocks(ctx, js); err != nil {
			return nil, err
		}
	}
	log, err := jetlog.Open(ctx, nc, jetlog.Config{GateDir: dir}) // opening the gate syncs all that is there
	if err == nil && h.mode != embedded.Group {
		log, err = jetlog.Open(ctx, nc, jetlog.Config{})
	}
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, events.StreamName(0))
	return &openLog{Log: log, stream: stream}, err
}

// makeSmallBlocks makes the stream before the log does. The server derives the size of blocks from the
// stream's size limit when it makes or recovers the stream, and does not look again when the limit goes.
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

const writers = 6

// longLoad is when a load that has not come to its cut is cut where it is: an erasure rewrites its block, so that the
// changes of a long load come ever slower.
const longLoad = 30 * time.Second

func session(w int) string { return fmt.Sprintf("s%d", w) }

// load writes, reads and deletes until the cut. What is under way then is ended in order: a server that
// is stopped within an atomic batch leaves goroutines behind.
func (h *history) load(ctx context.Context, log *openLog) {
	alive, die := context.WithCancel(ctx)
	defer die()
	var wg sync.WaitGroup
	loop := func(on bool, job func(context.Context, *openLog, *rand.Rand)) {
		rng := rand.New(rand.NewPCG(h.rng.Uint64(), h.rng.Uint64()))
		if !on {
			return
		}
		wg.Go(func() {
			for !h.off() && ctx.Err() == nil {
				job(ctx, log, rng)
			}
		})
	}
	for w := range writers {
		loop(true, func(ctx context.Context, log *openLog, rng *rand.Rand) {
			h.append(ctx, log, session(w), 1+max(0, rng.IntN(8)-4))
		})
	}
	// Always has no gate, and the server shows an atomic batch before it has synced it.
	loop(h.mode == embedded.Group, func(_ context.Context, log *openLog, _ *rand.Rand) { h.followTail(alive, log) })
	loop(h.erase, h.eraseOne)
	loop(h.compact, h.deleteMany)
	loop(h.purge, h.purgeSession)
	select {
	case <-h.fs.Off():
	case <-time.After(longLoad):
		h.fs.CutAfter(1)
	}
	die()
	wg.Wait()
	h.append(ctx, log, session(0), 1) // behind whatever the server still has in its queue
}

// append appends n events at once and, when they are acknowledged before the cut, holds the log to them.
func (h *history) append(ctx context.Context, log *openLog, session string, n int) {
	facts := h.facts(session, n)
	ack, err := log.Append(ctx, jetlog.Append{Facts: facts})
	if err == nil {
		err = log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return
	}
	for i, f := range facts {
		env, err := events.Encode(f, time.Time{})
		if err != nil {
			return
		}
		seq := ack.Position.Seq - uint64(n-1-i)
		h.promise(seq, events.Recorded{ID: f.EventID(), SessionID: session, Body: env.Body})
	}
}

func (h *history) facts(session string, n int) []events.Fact {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := make([]events.Fact, n)
	for i := range facts {
		h.made++
		facts[i] = turntest.Started(session, fmt.Sprint(h.made), strings.Repeat("text ", 20+h.made*7919%280))
	}
	return facts
}

// promise takes note of an event that was promised before the cut.
func (h *history) promise(seq uint64, e events.Recorded) {
	if h.off() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.promised[seq]; !known {
		h.promised[seq] = e
		h.promises++
	}
}

// followTail holds the log to what a gated tail shows.
func (h *history) followTail(ctx context.Context, log *openLog) {
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

// pick returns a random promised event, 0 if there is none. Under the lock it has note say what may go.
func (h *history) pick(rng *rand.Rand, note func(seq uint64)) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.promised) == 0 {
		return 0
	}
	seq := 1 + rng.Uint64N(uint64(len(h.promised)))
	note(seq)
	return seq
}

func (h *history) eraseOne(ctx context.Context, log *openLog, rng *rand.Rand) {
	if seq := h.pick(rng, func(seq uint64) { h.loose[seq] = true }); seq > 0 {
		_ = log.stream.SecureDeleteMsg(ctx, seq)
	}
}

// deleteMany deletes most of a small block's events, so that the server compacts it.
func (h *history) deleteMany(ctx context.Context, log *openLog, rng *rand.Rand) {
	var seqs []uint64
	h.pick(rng, func(from uint64) {
		for seq := from; seq < from+40; seq++ {
			if rng.IntN(5) > 0 {
				h.loose[seq] = true
				seqs = append(seqs, seq)
			}
		}
	})
	for _, seq := range seqs {
		_ = log.stream.DeleteMsg(ctx, seq)
	}
}

func (h *history) purgeSession(ctx context.Context, log *openLog, rng *rand.Rand) {
	of := ""
	seq := h.pick(rng, func(seq uint64) {
		if of = h.promised[seq].SessionID; of != "" {
			h.purged[of] = max(h.purged[of], seq)
		}
	})
	if of != "" {
		_ = log.stream.Purge(ctx, jetstream.WithPurgeSubject(events.SessionSubject(of)),
			jetstream.WithPurgeSequence(seq))
	}
}

// check looks for every event that was promised: the same bytes at the same place.
func (h *history) check(ctx context.Context, log *openLog) error {
	found := map[uint64]events.Recorded{}
	for w := range writers {
		err := h.patiently(ctx, func() error {
			for e, err := range log.Session(ctx, session(w), 0, math.MaxUint64) {
				if err != nil {
					return err
				}
				found[e.Position.Seq] = e
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var lost error
	count := 0
	for seq, want := range h.promised {
		got, ok := found[seq]
		switch {
		case !ok && (h.loose[seq] || seq < h.purged[want.SessionID]):
			delete(h.promised, seq)
		case !ok || got.ID != want.ID || string(got.Body) != string(want.Body):
			count++
			lost = fmt.Errorf("%w: %s at %d (there: %q), %d of %d in all", errLost, want.ID, seq, got.ID, count,
				len(h.promised))
		}
	}
	// What is gone gives its sequence free for another event.
	maps.DeleteFunc(h.loose, func(seq uint64, _ bool) bool { _, ok := found[seq]; return !ok })
	return lost
}
