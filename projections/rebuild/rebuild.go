package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/projections/runner"
)

// Config of a rebuild or a verification. They use the runner's Rules, MaxBatch (5,000 by default), Start, Logger and
// Desk.
type Config = runner.Config

func withDefaults(c Config, log *jetlog.Log) Config {
	if c.MaxBatch <= 0 {
		c.MaxBatch = 5000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Desk == nil {
		c.Desk = desk.Of(log)
	}
	return c
}

// Rebuild is one rebuild of one projection.
type Rebuild struct {
	log   *jetlog.Log
	view  projections.View
	cfg   Config
	gen   projections.Generation
	parts []*progress
	// letters are the dead letters of the served generation.
	letters *desk.Queue
	// former is what the store serves while the generation is filled.
	former  projections.Served
	release func(context.Context)
	// cancel closes cancelled, once; over is closed when Run has ended, with err.
	cancel          func()
	cancelled, over chan struct{}
	err             error
	begun, done     time.Time
}

// ErrCancelled is the error of a rebuild that Cancel has ended.
var ErrCancelled = errors.New("the rebuild was cancelled")

// Begin takes the right to rebuild the view, and begins a generation; the caller must call Run. It fails with
// projections.ErrRebuilding if another process has the right.
func Begin(
	ctx context.Context, log *jetlog.Log, view projections.View, gens projections.Rebuildable, cfg Config,
) (*Rebuild, error) {
	cfg = withDefaults(cfg, log)
	r := &Rebuild{log: log, view: view, cfg: cfg, cancelled: make(chan struct{}), over: make(chan struct{}),
		begun: time.Now()}
	if err := r.begin(ctx, gens); err != nil {
		return nil, fmt.Errorf("rebuild %s: %w", view.Name(), err)
	}
	r.cancel = sync.OnceFunc(func() { close(r.cancelled) })
	r.letters = cfg.Desk.Queue(view, log, cfg.Rules)
	for k := range log.Partitions() {
		r.parts = append(r.parts, &progress{partition: k})
	}
	return r, nil
}

func (r *Rebuild) begin(ctx context.Context, gens projections.Rebuildable) (err error) {
	if r.former, err = r.view.Served(ctx); err != nil {
		return err
	}
	if r.release, err = r.cfg.Desk.Lease(ctx, r.view.Name(), r.former.Store); err != nil {
		return err
	}
	if r.gen, err = gens.NewGeneration(ctx); err != nil {
		r.release(context.WithoutCancel(ctx))
	}
	return err
}

// Generation returns the number of the generation that is being filled.
func (r *Rebuild) Generation() uint64 { return r.gen.Number() }

// dropDeadline bounds the removal of what a rebuild has left behind.
const dropDeadline = time.Minute

// Cancel ends Run, waits until it has ended, and reports whether the rebuild was cancelled. It returns false if Run had
// already ended, or already swapped the generation in.
func (r *Rebuild) Cancel(ctx context.Context) (bool, error) {
	if over, _ := r.ended(); over {
		return false, nil
	}
	r.cancel()
	select {
	case <-r.over:
		return errors.Is(r.err, ErrCancelled), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Run fills the generation, swaps it in and drops the former one. After an error, the served generation is unchanged.
// The error is ErrCancelled, ctx's, or names the position of an event that can't be applied.
func (r *Rebuild) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.cancelled:
			cancel(ErrCancelled)
		case <-ctx.Done():
		}
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropDeadline)
		defer cancel()
		if dropped := r.drop(ctx, err == nil); dropped != nil {
			r.cfg.Logger.Warn("what the rebuild leaves behind is removed by the next one", "projection", r.view.Name(),
				"err", dropped)
		}
		r.err, r.done = err, time.Now()
		close(r.over)
	}()
	if err := r.fill(ctx); err != nil {
		if errors.Is(context.Cause(ctx), ErrCancelled) {
			err = ErrCancelled
		}
		return fmt.Errorf("rebuild %s: %w", r.view.Name(), err)
	}
	return nil
}

// drop removes the generation that is not served, with its letters.
func (r *Rebuild) drop(ctx context.Context, swapped bool) error {
	defer r.release(ctx)
	if err := r.gen.Drop(ctx); err != nil {
		return err
	}
	gone := r.gen.Number()
	if swapped {
		gone = r.former.Generation
	}
	return r.cfg.Desk.Clear(ctx, r.view.Name(), r.former.Store, gone)
}

// fill brings all partitions into the generation, and swaps when all have caught up.
func (r *Rebuild) fill(ctx context.Context) error {
	foreign, err := r.foreign(ctx)
	if err != nil {
		return err
	}
	return each(ctx, r.log, r.gen, r.cfg, r.letters, r.parts, func(ctx context.Context, fills []*fill) error {
		return r.swap(ctx, fills, projections.SwapCheck(foreign))
	})
}

// each claims all partitions of a sink, and has do fill them.
func each(
	ctx context.Context, log *jetlog.Log, sink projections.Sink, cfg Config, letters *desk.Queue, parts []*progress,
	do func(context.Context, []*fill) error,
) error {
	from := follower.Alone(log, follower.Config{Rules: cfg.Rules, Bytes: math.MaxInt64, Loads: 1})
	fills := make([]*fill, len(parts))
	for k, p := range parts {
		f, err := claim(ctx, log, from, sink, cfg, letters, p)
		if err != nil {
			return err
		}
		defer f.in.Close()
		fills[k] = f
	}
	return do(ctx, fills)
}

// foreign reports whether the served generation follows another stream than the log's. Its position then means nothing.
func (r *Rebuild) foreign(ctx context.Context) (bool, error) {
	served, err := r.view.Served(ctx)
	if err != nil {
		return false, err
	}
	for _, cp := range served.At {
		if cp.Partition >= r.log.Partitions() {
			return true, nil
		}
		_, err := answered(ctx, func() (any, error) { return nil, projections.SameStream(ctx, r.log, cp) })
		if errors.Is(err, projections.ErrStream) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// swap catches up with the head, and swaps. While the served generation is further, it catches up with that generation
// and tries again: the served generation's runners have been fenced, and pause. So a head that moves faster than the
// new generation can't delay the swap for ever.
func (r *Rebuild) swap(ctx context.Context, fills []*fill, check projections.SwapCheck) error {
	g, each := errgroup.WithContext(ctx)
	for _, f := range fills {
		g.Go(func() error { return f.catchUp(each) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for {
		err := r.gen.Swap(ctx, check)
		if !errors.Is(err, projections.ErrNotCaughtUp) {
			return err
		}
		if err := r.reachServed(ctx, fills); err != nil {
			return err
		}
	}
}

// reachServed applies the log up to the position of the served generation.
func (r *Rebuild) reachServed(ctx context.Context, fills []*fill) error {
	served, err := r.view.Served(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, cp := range served.At {
		if cp.Partition < len(fills) {
			g.Go(func() error { return fills[cp.Partition].reach(ctx, cp.Seq) })
		}
	}
	return g.Wait()
}
