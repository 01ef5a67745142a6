package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
)

// runRebuilds runs the rebuilds until ctx ends; then it cancels those that are running.
func (f *Fleet) runRebuilds(ctx context.Context) error {
	var g errgroup.Group
	log := f.cfg.Logger
	for {
		select {
		case r := <-f.begunRebuilds:
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

// rebuildableHere finds a view that this process feeds and that can be rebuilt.
func (f *Fleet) rebuildableHere(name string) (*ManagedView, error) {
	m := f.view(name)
	switch {
	case m == nil && slices.Contains(f.cfg.ViewNames, name):
		return nil, projections.ErrNotFed
	case m == nil && !slices.Contains(f.workers, name):
		return nil, projections.ErrNoProjection
	case !m.rebuildable():
		return nil, projections.ErrNotRebuildable
	case !m.isFed():
		return nil, projections.ErrNotFed
	}
	return m, nil
}

// rebuildConfig returns the configuration of a rebuild: as the view is fed, but with the rebuild's own batch size.
func (m *ManagedView) rebuildConfig() rebuild.Config {
	c := m.feeding()
	c.MaxBatch = 0
	return c
}

// Rebuild begins a rebuild, which Run continues, and returns the number of its generation. Errors:
// projections.ErrNoProjection, ErrNotRebuildable, ErrNotFed, ErrRebuilding, or an error of the view's store.
func (f *Fleet) Rebuild(ctx context.Context, name string) (generation uint64, err error) {
	m, err := f.rebuildableHere(name)
	if err != nil {
		return 0, err
	}
	r, err := rebuild.Begin(ctx, f.cfg.Log, m.View, m.Rebuildable, m.rebuildConfig())
	if err != nil {
		return 0, err
	}
	select {
	case f.begunRebuilds <- r:
		m.last.Store(r)
		return r.Generation(), nil
	case <-ctx.Done():
		return r.Generation(), r.Run(ctx) // runRebuilds has ended: this cancels the rebuild
	}
}

// CancelRebuild cancels the rebuild of a view. It fails with projections.ErrNoProjection, or with ErrNoRebuild if none
// runs in this process.
func (f *Fleet) CancelRebuild(ctx context.Context, name string) (generation uint64, err error) {
	m, err := f.rebuildableHere(name)
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

// verifyTick is the pause between two reports of a verification's progress.
const verifyTick = 500 * time.Millisecond

// Verify compares a view, or sample of its sessions, with a new fold of the log. It reports progress now and then, and
// each difference, one at a time, and returns how many sessions it compared.
func (f *Fleet) Verify(ctx context.Context, name string, sample int,
	progress func(done, of uint64) error, found func(projections.Difference) error,
) (sessions int, err error) {
	m, err := f.rebuildableHere(name)
	if err != nil {
		return 0, err
	}
	v := rebuild.NewVerification(f.cfg.Log, m.View, m.rebuildConfig())
	var say sync.Mutex // one line at a time
	g, ctx := errgroup.WithContext(ctx)
	running, over := context.WithCancel(ctx)
	g.Go(func() (err error) {
		defer over()
		sessions, err = v.Run(ctx, sample, func(d projections.Difference) error {
			say.Lock()
			defer say.Unlock()
			return found(d)
		})
		return err
	})
	g.Go(func() error {
		for pause.For(running, verifyTick) {
			say.Lock()
			err := progress(v.Progress())
			say.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err = g.Wait(); err != nil {
		// Clients are not told the cause.
		f.cfg.Logger.Warn("a verification has ended early", "projection", name, "err", err)
	}
	return sessions, err
}
