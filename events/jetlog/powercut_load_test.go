//go:build linux

package jetlog_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

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
		facts[i] = logtest.Started(session, fmt.Sprint(h.made), strings.Repeat("text ", 20+h.made*7919%280))
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
