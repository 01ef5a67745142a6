// Package runner feeds a projection from the log (docs/design.md#projections). Batches go through Watermill, each event
// comes with the fold's verdict, the checkpoint is stored with the data, and events that can't be applied become dead
// letters.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/follower"
)

// Config of a Runner.
type Config struct {
	Rules session.Rules
	// Follower reads the log with others; by default the runner reads it by itself.
	Follower *follower.Follower
	Feeding
	Logger *slog.Logger
	// Metrics count what is fed; by default they are not registered anywhere.
	Metrics *Metrics
	// Traces of what is applied; nil: none.
	Traces trace.TracerProvider
	// Pause before a failed partition is tried again; 1 s by default.
	Pause time.Duration
	// Group of the runners, in any process, that share the partitions of the projection; nil: this runner feeds all of
	// them.
	Group projections.Group
	// Desk keeps the dead letters; the log's desk by default.
	Desk *desk.Desk
	// Beat is the pause between two heartbeats of the runner in its group; 1 s by default. A runner that misses five
	// beats counts as dead.
	Beat time.Duration
}

// Feeding is how a projection wants to be fed.
type Feeding struct {
	// MaxBatch bounds the events of one Apply; 2,000 by default.
	MaxBatch int
	// Rest is how long a partition rests after a batch that was far from full, so that the next one holds more: a
	// transaction for each event costs more than the event. By default there is no rest.
	Rest time.Duration
	// Lag is how long an event may wait until a batch is full, while Busy reports that others need the processors: a
	// large batch costs less of them than many small ones. By default no event waits.
	Lag  time.Duration
	Busy func() bool
	// Start returns the sequence after which a projection without a checkpoint begins; the log's beginning by default.
	Start func(ctx context.Context, partition int) (uint64, error)
}

// Runner feeds one projection from all partitions, or from its share of them.
type Runner struct {
	log  *jetlog.Log
	proj projections.Projection
	// task: the projection is a Task.
	task  bool
	cfg   Config
	parts []*progress
}

// NewTask makes a runner of a task; it does no I/O.
func NewTask(log *jetlog.Log, t projections.Task, cfg Config) *Runner {
	r := New(log, asProjection{t}, cfg)
	r.task = true
	return r
}

// asProjection makes a task look like a projection.
type asProjection struct{ projections.Task }

func (a asProjection) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	return a.Resume(ctx, partition)
}

func (a asProjection) Apply(ctx context.Context, b projections.Batch) error { return a.Take(ctx, b) }

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
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if cfg.Desk == nil {
		cfg.Desk = desk.Of(log)
	}
	if cfg.Follower == nil {
		cfg.Follower = follower.Alone(log, follower.Config{Rules: cfg.Rules, Logger: cfg.Logger})
	}
	r := &Runner{log: log, proj: p, cfg: cfg}
	for k := range log.Partitions() {
		r.parts = append(r.parts, &progress{partition: k, state: starting})
	}
	return r
}

// Run feeds the projection until ctx ends, and then returns nil. It retries for ever what a retry can mend. It fails
// with ErrStream if the checkpoint belongs to another stream.
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
		// A random pause keeps two runners from fencing each other again and again.
		pause.For(ctx, r.cfg.Pause/2+rand.N(r.cfg.Pause)) //nolint:gosec // no secret
	}
}

// foreign reports whether a projection has to stop because its checkpoint does not belong to this log.
func foreign(err error) bool {
	return errors.Is(err, projections.ErrStream) || errors.Is(err, jetlog.ErrStream)
}
