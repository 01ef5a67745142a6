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
const rebuiltEvery = 200 * time.Millisecond

// awaitRebuild waits until a view follows the log's streams; false if ctx ends first.
func (v *views) awaitRebuild(ctx context.Context, view projections.Rebuildable) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rebuiltEvery):
		}
		if v.follows(ctx, view) == nil {
			return true
		}
	}
}

// follows holds a view against the log's streams.
func (v *views) follows(ctx context.Context, view projections.Rebuildable) error {
	ctx, cancel := context.WithTimeout(ctx, collectDeadline)
	defer cancel()
	_, served, err := view.Served(ctx)
	for _, cp := range served {
		if err == nil && cp.Partition < v.log.Partitions() {
			err = projections.SameStream(ctx, v.log, cp)
		}
	}
	return err
}

// watch keeps readers from a view in a store that outlives the log until it was seen to
// follow the log's streams: a log that was restored may be behind what the view holds, and
// a process that only reads has no feed to notice.
func (v *views) watch(ctx context.Context, view projections.Rebuildable, g *guard) {
	if err := v.follows(ctx, view); err != nil {
		g.why.Store(&err)
	}
}

// unguard lets readers in once a view follows the log's streams.
func (v *views) unguard(ctx context.Context, view projections.Rebuildable, g *guard) error {
	if g.failure() != nil && v.awaitRebuild(ctx, view) {
		g.why.Store(nil)
	}
	return nil
}
