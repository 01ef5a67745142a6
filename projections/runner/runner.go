// Package runner feeds a projection from the log: batches through Watermill, each
// event with the fold's verdict, the checkpoint with the data, dead letters for what
// can't be applied (DESIGN §5).
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// Config of a Runner.
type Config struct {
	Rules conversation.Rules
	// MaxBatch bounds the events of one Apply; 2,000 by default.
	MaxBatch int
	// Start gives the sequence after which a projection without a checkpoint begins;
	// the log's beginning by default.
	Start   func(ctx context.Context, partition int) (uint64, error)
	Logger  *slog.Logger
	Metrics *Metrics
	// Traces of what is applied; nil: none.
	Traces trace.TracerProvider
	// Pause before a partition that broke off is taken up again; 1 s by default.
	Pause time.Duration
	// Group of the runners, in any process, that share the partitions of the projection;
	// nil: this one feeds all of them.
	Group projections.Group
	// Beat is how often the runner tells its group that it lives; 1 s by default. One
	// that has been silent for five beats counts as dead.
	Beat time.Duration
}

// Runner feeds one projection from all partitions, or from its share of them.
type Runner struct {
	log   *jetlog.Log
	proj  projections.Projection
	cfg   Config
	parts []*progress
}

// New makes a runner; it does no I/O.
func New(log *jetlog.Log, p projections.Projection, cfg Config) *Runner {
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = 2000
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Pause <= 0 {
		cfg.Pause = time.Second
	}
	if cfg.Beat <= 0 {
		cfg.Beat = time.Second
	}
	r := &Runner{log: log, proj: p, cfg: cfg}
	for k := range log.Partitions() {
		r.parts = append(r.parts, &progress{partition: k, state: starting})
	}
	return r
}

// Run feeds the projection until ctx ends, and then returns nil. What can be mended
// by trying again is tried again for ever; a stream that is not the one of the
// checkpoint ends the run with ErrStream.
func (r *Runner) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if r.cfg.Group != nil {
		g.Go(func() error { return r.share(ctx, g) })
	} else {
		for k := range r.parts {
			g.Go(func() error { return r.runPartition(ctx, k) })
		}
	}
	err := g.Wait()
	for _, p := range r.parts {
		p.end(err)
	}
	return err
}

func (r *Runner) runPartition(ctx context.Context, k int) error {
	for {
		err := r.feed(ctx, k)
		if ctx.Err() != nil {
			r.parts[k].set(stopped, nil)
			return nil
		}
		if foreign(err) {
			r.parts[k].set(failed, err)
			return fmt.Errorf("projection %s: %w", r.proj.Name(), err)
		}
		r.parts[k].set(retrying, err)
		r.cfg.Logger.Warn("the projection is taken up again", "projection", r.proj.Name(), "partition", k, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(r.cfg.Pause):
		}
	}
}

// foreign tells whether a projection has to stop: its checkpoint is not of this log.
func foreign(err error) bool {
	return errors.Is(err, projections.ErrStream) || errors.Is(err, jetlog.ErrStream)
}

// feed runs one partition until something breaks off.
func (r *Runner) feed(ctx context.Context, k int) error {
	f := &feeder{Runner: r, partition: k}
	if err := f.claim(ctx); err != nil {
		return err
	}
	sub := r.log.NewBatchSubscriber(func(int) uint64 { return f.at.Seq }, r.cfg.MaxBatch)
	defer func() { _ = sub.Close() }()
	if err := sub.Open(ctx, k); err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Recoverer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.stop = cancel
	router.AddConsumerHandler(r.proj.Name(), events.StreamName(k), sub, f.handle)
	r.parts[k].set(live, nil)
	var lost error
	var watching sync.WaitGroup
	watching.Go(func() {
		if lost = f.watch(ctx); lost != nil {
			cancel()
		}
	})
	err = router.Run(ctx)
	cancel()
	watching.Wait()
	switch {
	case err != nil:
		return err
	case f.fatal != nil:
		return f.fatal
	case lost != nil:
		return lost
	}
	return errors.New("the tail ended")
}

// watch looks from time to time whether the store still has what was committed: one
// that was emptied, or set back to a copy, would else be noticed by the next event
// only. It returns nil when ctx ends.
func (f *feeder) watch(ctx context.Context) error {
	stored, ok := f.proj.(projections.Rebuildable)
	if !ok {
		return nil
	}
	look := time.NewTicker(2 * f.cfg.Beat)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		before := f.committed.Load()
		_, at, err := stored.Served(ctx)
		if err != nil {
			continue // the next batch tells
		}
		i := slices.IndexFunc(at, func(c projections.Checkpoint) bool { return c.Partition == f.partition })
		if before > 0 && (i < 0 || at[i].Seq < before) {
			return fmt.Errorf("the store has lost what stood at %s: it is filled again", events.Position{Partition: f.partition, Seq: before})
		}
	}
}

// feeder is the life of one partition between a claim and a break.
type feeder struct {
	*Runner
	partition int
	at        projections.Checkpoint
	judge     *projections.Judge
	stop      context.CancelFunc
	stale     bool
	fatal     error
	// committed is the sequence of the checkpoint that the store must have.
	committed atomic.Uint64
}

// claim takes the partition over and holds the stream against the checkpoint.
func (f *feeder) claim(ctx context.Context) error {
	cp, err := f.proj.Claim(ctx, f.partition)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	cp.Partition = f.partition
	if err := projections.SameStream(ctx, f.log, cp); err != nil {
		return err
	}
	cp.Created = f.log.Created(f.partition)
	f.at = cp
	f.committed.Store(cp.Seq)
	if cp.Seq == 0 && f.cfg.Start != nil {
		if f.at.Seq, err = f.cfg.Start(ctx, f.partition); err != nil {
			return err
		}
	}
	f.judge, f.stale = projections.NewJudge(f.log, f.cfg.Rules, f.at.Seq), false
	f.parts[f.partition].reached(f.at.Seq, 0)
	return nil
}

// handle applies one batch; an error makes the subscriber emit it again.
func (f *feeder) handle(m *message.Message) error {
	ctx := m.Context()
	err := f.handleBatch(ctx, jetlog.MessageBatch(m))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, projections.ErrFenced), errors.Is(err, projections.ErrStream):
		f.fatal = err
		f.stop()
	default:
		f.parts[f.partition].set(retrying, err)
		f.cfg.Metrics.failed(f.proj.Name())
		f.cfg.Logger.Warn("a batch is tried again", "projection", f.proj.Name(), "position", f.at.Position(), "err", err)
	}
	return err
}

func (f *feeder) handleBatch(ctx context.Context, batch []jetlog.Message) error {
	if f.stale {
		// What the last attempt did is unknown: only the stored checkpoint tells.
		before := f.at
		if err := f.claim(ctx); err != nil {
			return err
		}
		if f.at.Seq < before.Seq {
			return fmt.Errorf("%w: the checkpoint went back to %s", projections.ErrFenced, f.at.Position())
		}
		// Who was fenced in between holds a batch that may be no more what the log has.
		if f.at.Epoch > before.Epoch+1 {
			return projections.ErrFenced
		}
	}
	// Until all is applied, a panic included, nothing of what was judged stands.
	f.stale = true
	judged, err := f.judgeAll(ctx, batch)
	if err == nil {
		err = f.apply(ctx, judged)
	}
	if err != nil {
		return err
	}
	f.stale = false
	f.parts[f.partition].set(live, nil)
	return nil
}

func (f *feeder) judgeAll(ctx context.Context, batch []jetlog.Message) ([]projections.Judged, error) {
	judged := make([]projections.Judged, 0, len(batch))
	for _, m := range batch {
		if m.Position.Seq <= f.at.Seq {
			continue
		}
		j, err := f.judge.Judge(ctx, m.Recorded())
		if err != nil {
			return nil, err
		}
		judged = append(judged, j)
	}
	return judged, nil
}

// apply commits a run of events. One that can't be applied is found by halving the
// run, and parked.
func (f *feeder) apply(ctx context.Context, run []projections.Judged) error {
	if len(run) == 0 {
		return nil
	}
	b := f.batch(run)
	ctx, ended := f.span(ctx, run)
	// What has begun is brought to its end when the runner stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyDeadline)
	defer cancel()
	err := f.proj.Apply(ctx, b)
	ended(err)
	switch {
	case err == nil:
		f.done(b)
		return nil
	case !projections.IsPermanent(err):
		return err
	case len(run) > 1:
		if err := f.apply(ctx, run[:len(run)/2]); err != nil {
			return err
		}
		return f.apply(ctx, run[len(run)/2:])
	}
	f.cfg.Logger.Error("an event can't be applied and goes to the dead letters; look at it with: turnledger deadletters list",
		"projection", f.proj.Name(), "position", run[0].Position, "event_type", run[0].Type, "err", err)
	if err := f.proj.Park(ctx, b, err.Error()); err != nil {
		return err
	}
	f.cfg.Metrics.parked(f.proj.Name())
	f.done(b)
	return nil
}

const applyDeadline = 30 * time.Second

func (f *feeder) batch(run []projections.Judged) projections.Batch {
	last := run[len(run)-1]
	to := f.at
	to.Seq, to.EventID = last.Position.Seq, last.ID
	return projections.Batch{From: f.at, To: to, Events: run}
}

func (f *feeder) done(b projections.Batch) {
	f.at = b.To
	f.committed.Store(b.To.Seq)
	f.parts[f.partition].reached(b.To.Seq, len(b.Events))
	f.cfg.Metrics.applied(f.proj.Name(), b.Events)
}
