package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
)

// runRebuilds runs what is begun until ctx ends; then rebuilds under way are broken off.
func (f *Fleet) runRebuilds(ctx context.Context) error {
	var g errgroup.Group
	log := f.cfg.Logger
	for {
		select {
		case r := <-f.begun:
			g.Go(func() error {
				began := time.Now()
				switch err := r.Run(ctx); {
				case errors.Is(err, rebuild.ErrCancelled):
					log.Info("a rebuild was cancelled; the view is served as it was", "generation", r.Generation())
				case err != nil:
					log.Error("a rebuild failed; the view is served as it was, and can be rebuilt again", "err", err)
				default:
					log.Info("a rebuild is served", "generation", r.Generation(), "duration", time.Since(began))
				}
				return nil
			})
		case <-ctx.Done():
			return g.Wait()
		}
	}
}

// kept finds a view that this process feeds and that can be rebuilt.
func (f *Fleet) kept(name string) (*Member, error) {
	m := f.view(name)
	switch {
	case m == nil && slices.Contains(f.cfg.Known, name):
		return nil, projections.ErrNotFed
	case !m.rebuildable():
		return nil, projections.ErrNoProjection
	case !m.fed():
		return nil, projections.ErrNotFed
	}
	return m, nil
}

// rebuildConfig is how a view is fed, but for the bound of its batches.
func (m *Member) rebuildConfig() rebuild.Config {
	c := m.feeding()
	c.MaxBatch = 0
	return c
}

// Rebuild begins a rebuild, which Run goes on with, and returns the number of its generation.
// projections.ErrNoProjection, ErrNotFed, projections.ErrRebuilding, or an error of the view's store.
func (f *Fleet) Rebuild(ctx context.Context, name string) (generation uint64, err error) {
	m, err := f.kept(name)
	if err != nil {
		return 0, err
	}
	r, err := rebuild.Begin(ctx, f.cfg.Log, m.View, m.Generations, m.rebuildConfig())
	if err != nil {
		return 0, err
	}
	select {
	case f.begun <- r:
		m.last.Store(r)
		return r.Generation(), nil
	case <-ctx.Done():
		return r.Generation(), r.Run(ctx) // nobody runs it any more: this breaks it off
	}
}

// CancelRebuild breaks off the rebuild of a view; projections.ErrNoProjection, or ErrNoRebuild where none runs here.
func (f *Fleet) CancelRebuild(ctx context.Context, name string) (generation uint64, err error) {
	m, err := f.kept(name)
	if errors.Is(err, projections.ErrNoProjection) {
		return 0, err
	}
	if m == nil || m.last.Load() == nil {
		return 0, projections.ErrNoRebuild
	}
	r := m.last.Load()
	cancelled, err := r.Cancel(ctx)
	if err == nil && !cancelled {
		err = projections.ErrNoRebuild
	}
	return r.Generation(), err
}

// verifyTick is the pause between two words on how far a verification is.
const verifyTick = 500 * time.Millisecond

// Verify compares a view, or sample of its sessions, with a new fold of the log. It reports progress now and then, and
// each difference, one at a time, and returns how many sessions it compared.
func (f *Fleet) Verify(ctx context.Context, name string, sample int,
	progress func(done, of uint64) error, found func(projections.Difference) error,
) (sessions int, err error) {
	m, err := f.kept(name)
	if err != nil {
		return 0, err
	}
	v := rebuild.NewVerification(f.cfg.Log, m.View, m.rebuildConfig())
	var say sync.Mutex // one line at a time
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
		f.cfg.Logger.Warn("a verification has ended early", "projection", name, "err", err)
	}
	return sessions, err
}
