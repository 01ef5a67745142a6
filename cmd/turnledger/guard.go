package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// guard remembers why a view may not be read: it follows another stream than the
// log's, and its positions say nothing about what it holds.
type guard struct{ why atomic.Pointer[error] }

func (g *guard) failure() error {
	if err := g.why.Load(); err != nil {
		return *err
	}
	return nil
}

// guardedView is the recent view for readers, who ask the log where it fails.
type guardedView struct {
	recent.View
	guard *guard
}

// guarded gives the recent view for readers.
func (v *views) guarded() contextbuilder.View {
	if v.shadow != nil {
		return v.shadow.view
	}
	return guardedView{v.recent, &v.recentGuard}
}

// Load gives what the view holds of a session, unless it may not be read.
func (g guardedView) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	if err := g.guard.failure(); err != nil {
		return recent.Snapshot{}, err
	}
	return g.View.Load(ctx, sessionID, partition, shown)
}

// Wait blocks until the view has applied a position.
func (g guardedView) Wait(ctx context.Context, at events.Position) error {
	if w, ok := g.View.(interface {
		Wait(context.Context, events.Position) error
	}); ok {
		return w.Wait(ctx, at)
	}
	return errors.ErrUnsupported
}

// follow feeds a view. One that follows another stream stops and is read by nobody,
// while the process goes on, so that the view can be rebuilt; then it is fed again.
func (v *views) follow(ctx context.Context, r *runner.Runner, view projections.Rebuildable, g *guard) error {
	for {
		err := r.Run(ctx)
		if !errors.Is(err, projections.ErrStream) {
			return err
		}
		v.logger.Error("a view stopped, and only the log is read until the view is rebuilt", "err", err)
		g.why.Store(&err)
		if !v.awaitRebuild(ctx, view) {
			return nil
		}
		g.why.Store(nil)
	}
}

// rebuiltEvery is the pause between two looks whether a view was rebuilt.
const rebuiltEvery = time.Second

// awaitRebuild waits until a view follows the log's streams; false if ctx ends first.
func (v *views) awaitRebuild(ctx context.Context, view projections.Rebuildable) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rebuiltEvery):
		}
		_, served, err := view.Served(ctx)
		for _, cp := range served {
			if err == nil && cp.Partition < v.log.Partitions() {
				err = projections.SameStream(ctx, v.log, cp)
			}
		}
		if err == nil {
			return true
		}
	}
}
