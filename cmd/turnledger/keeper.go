package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/services"
)

// keeper runs the rebuilds of a process, and remembers the last of each view.
type keeper struct {
	logger *slog.Logger
	begun  chan *rebuild.Rebuild

	mu   sync.Mutex
	last map[string]*rebuild.Rebuild
}

func newKeeper(logger *slog.Logger) *keeper {
	return &keeper{logger: logger, begun: make(chan *rebuild.Rebuild), last: map[string]*rebuild.Rebuild{}}
}

// run runs what is begun until ctx ends; then rebuilds under way are broken off.
func (k *keeper) run(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case r := <-k.begun:
			g.Go(func() error {
				began := time.Now()
				switch err := r.Run(ctx); {
				case errors.Is(err, rebuild.ErrCancelled):
					k.logger.Info("a rebuild was cancelled; the view is served as it was", "generation", r.Generation())
				case err != nil:
					k.logger.Error("a rebuild failed; the view is served as it was, and can be rebuilt again", "err", err)
				default:
					k.logger.Info("a rebuild is served", "generation", r.Generation(), "duration", time.Since(began))
				}
				return nil
			})
		case <-ctx.Done():
			return g.Wait()
		}
	}
}

// hand gives a rebuild to run. It is broken off where nobody runs it any more.
func (k *keeper) hand(ctx context.Context, name string, r *rebuild.Rebuild) error {
	select {
	case k.begun <- r:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.last[name] = r
		return nil
	case <-ctx.Done():
		return r.Run(ctx)
	}
}

// cancel breaks off the rebuild of a view; projections.ErrNoRebuild where none runs here.
func (k *keeper) cancel(ctx context.Context, name string) (generation uint64, err error) {
	k.mu.Lock()
	r := k.last[name]
	k.mu.Unlock()
	if r == nil {
		return 0, projections.ErrNoRebuild
	}
	cancelled, err := r.Cancel(ctx)
	if err == nil && !cancelled {
		err = projections.ErrNoRebuild
	}
	return r.Generation(), err
}

func (k *keeper) status(ctx context.Context) (out []projections.Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range []string{"recent", "audit"} {
		if r := k.last[name]; r != nil {
			out = append(out, r.Status(ctx, time.Now())...)
		}
	}
	return out
}

// kept is a view that can be rebuilt and verified.
type kept interface {
	projections.Rebuildable
	projections.Verifiable
}

// kept finds a view that this process feeds.
func (v *views) kept(name string) (kept, rebuild.Config, error) {
	cfg := rebuild.Config{Rules: v.cfg.rules(), Logger: v.logger}
	switch name {
	case "recent":
		if view, ok := v.recent.(kept); ok && len(v.feeds) > 0 {
			cfg.Start = v.start
			return view, cfg, nil
		}
	case "audit":
		if v.auditFeed.Load() != nil {
			return v.audit.open.Load(), cfg, nil
		}
	default:
		return nil, cfg, projections.ErrNoProjection
	}
	return nil, cfg, projections.ErrNotFed
}

// fed is the views that this process feeds.
type fed struct{ views *views }

var (
	_ services.ProjectionReader = fed{}
	_ services.ProjectionKeeper = fed{}
)

// Projections tells how far they are, how far the generations that rebuilds fill, and what is known of the views that others feed.
func (f fed) Projections(ctx context.Context) ([]projections.Status, error) {
	// Before what is served: a rebuild that has ended is seen in one of both.
	filling := f.views.keeper.status(ctx)
	numbers := map[string]uint64{}
	for _, name := range []string{"recent", "audit"} {
		if view, _, err := f.views.kept(name); err == nil {
			numbers[name], _, err = view.Served(ctx)
			if err != nil {
				f.views.logger.Debug("a view does not tell its generation", "projection", name, "err", err)
			}
		}
	}
	var out []projections.Status
	for _, s := range f.views.status(ctx) {
		s.Generation, s.Rebuildable = numbers[s.Name], f.rebuildable(s.Name)
		out = append(out, s)
	}
	out = append(out, f.views.elsewhere(ctx)...)
	for _, s := range filling {
		s.Rebuildable = true
		out = append(out, s)
	}
	return out, nil
}

// rebuildable tells a view from an effect, which acts on the outside and has nothing to
// be filled again.
func (f fed) rebuildable(name string) bool {
	_, _, err := f.views.kept(name)
	return !errors.Is(err, projections.ErrNoProjection)
}

// Rebuild implements services.ProjectionKeeper.
func (f fed) Rebuild(ctx context.Context, name string) (uint64, error) {
	view, cfg, err := f.views.kept(name)
	if err != nil {
		return 0, err
	}
	r, err := rebuild.Begin(ctx, f.views.log, view, cfg)
	if err != nil {
		return 0, err
	}
	return r.Generation(), f.views.keeper.hand(ctx, name, r)
}

// CancelRebuild implements services.ProjectionKeeper.
func (f fed) CancelRebuild(ctx context.Context, name string) (uint64, error) {
	if !f.rebuildable(name) {
		return 0, projections.ErrNoProjection
	}
	return f.views.keeper.cancel(ctx, name)
}

// verifyTick is the pause between two words on how far a verification is.
const verifyTick = 500 * time.Millisecond

// Verify implements services.ProjectionKeeper.
func (f fed) Verify(ctx context.Context, name string, sample int, progress func(done, of uint64) error, found func(projections.Difference) error) (int, error) {
	view, cfg, err := f.views.kept(name)
	if err != nil {
		return 0, err
	}
	v := rebuild.NewVerification(f.views.log, view, cfg)
	var say sync.Mutex // one line at a time
	var sessions int
	g, ctx := errgroup.WithContext(ctx)
	over := make(chan struct{})
	g.Go(func() (err error) {
		defer close(over)
		sessions, err = v.Run(ctx, sample, func(d projections.Difference) error {
			say.Lock()
			defer say.Unlock()
			return found(d)
		})
		return err
	})
	g.Go(func() error {
		tick := time.NewTicker(verifyTick)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return nil
			case <-tick.C:
			}
			say.Lock()
			err := progress(v.Progress())
			say.Unlock()
			if err != nil {
				return err
			}
		}
	})
	if err = g.Wait(); err != nil {
		// What clients are told names no cause.
		f.views.logger.Warn("a verification has ended early", "projection", name, "err", err)
	}
	return sessions, err
}
