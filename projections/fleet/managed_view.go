package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// ManagedView is a view of a fleet. It is unopened until its store has answered. Then it is open, or refused while its
// checkpoints belong to another stream than the log's, since its positions then don't say what it holds.
type ManagedView struct {
	Entry
	fleet *Fleet
	desk  *desk.Desk
	feed  *runner.Runner // nil if another process feeds the view

	opened  atomic.Bool
	refused atomic.Pointer[error]
	// waits is why the view was not opened when that was tried last.
	waits atomic.Pointer[error]
	// last is the newest rebuild that this process has begun.
	last atomic.Pointer[rebuild.Rebuild]
}

const (
	// askDeadline bounds the queries for a status, a scrape or a view's checkpoints.
	askDeadline = 2 * time.Second
	// openDeadline bounds an attempt to open a store.
	openDeadline = 10 * time.Second
	// lookEvery is the pause between two looks whether a store answers, or whether a view was rebuilt: until then reads
	// do without the view. warnEvery is the least time between two warnings about it.
	lookEvery = 200 * time.Millisecond
	warnEvery = 10 * time.Second
)

// Readable returns why the view may not be read: ErrUnopened, or that it follows another stream.
func (m *ManagedView) Readable() error {
	if why := m.refused.Load(); why != nil {
		return *why
	}
	if !m.opened.Load() {
		return ErrUnopened
	}
	return nil
}

// Applied returns how far the view is, once it is open.
func (m *ManagedView) Applied(ctx context.Context, partition int) (events.Position, error) {
	if err := m.open(); err != nil {
		return events.Position{}, err
	}
	return m.View.Applied(ctx, partition)
}

// final returns how far deletions are final, once the view is open.
func (m *ManagedView) final(ctx context.Context, partition int) (events.Position, error) {
	if m.Final == nil {
		return m.Applied(ctx, partition)
	}
	if err := m.open(); err != nil {
		return events.Position{}, err
	}
	return m.Final(ctx, partition)
}

// open returns ErrUnopened until this process has opened the view's store.
func (m *ManagedView) open() error {
	if m.Open != nil && (m.Feeds || m.Reads) && !m.opened.Load() {
		return ErrUnopened
	}
	return nil
}

func (m *ManagedView) isFed() bool { return m.feed != nil && m.opened.Load() }

// tryOpen opens the view. Readers may use a view whose store outlives the log only once its checkpoints are known to
// belong to the log's streams: a restored log may be behind the view, and a process that only reads has no runner that
// would notice.
func (m *ManagedView) tryOpen(ctx context.Context) error {
	if m.Open != nil {
		ctx, cancel := context.WithTimeout(ctx, openDeadline)
		defer cancel()
		if err := m.Open(ctx); err != nil {
			m.waits.Store(&err)
			return err
		}
	}
	if !m.InMemory {
		if err := m.follows(ctx); err != nil {
			m.refused.Store(&err)
		}
	}
	m.opened.Store(true)
	return nil
}

// run opens the view if it is not open yet, retrying until it succeeds, and feeds it.
func (m *ManagedView) run(ctx context.Context) error {
	for warned := (time.Time{}); !m.opened.Load(); {
		err := m.tryOpen(ctx)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, projections.ErrUnavailable):
			return err
		}
		if time.Since(warned) >= warnEvery {
			m.fleet.cfg.Logger.Warn("a view waits for its store", "projection", m.View.Name(), "err", err)
			warned = time.Now()
		}
		if !pause.For(ctx, lookEvery) {
			return nil
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.unguard(ctx) })
	if m.feed != nil {
		g.Go(func() error { return m.follow(ctx) })
	}
	return g.Wait()
}

// feeding returns the runner's configuration, with the group of the view's store; a view in memory has no group.
func (m *ManagedView) feeding() runner.Config {
	out := m.fleet.cfg.Config
	out.Feeding, out.Desk = m.Feeding, m.desk
	if !m.InMemory {
		out.Group = m.desk.Members(m.View.Name(), func(ctx context.Context) (string, error) {
			served, err := m.View.Served(ctx)
			return served.Store, err
		})
	}
	return out
}

// follow feeds the view. If the view's checkpoints belong to another stream, follow stops feeding, and readers may not
// use the view. The process continues, so that the view can be rebuilt; then follow feeds it again.
func (m *ManagedView) follow(ctx context.Context) error {
	for {
		err := m.feed.Run(ctx)
		if !errors.Is(err, projections.ErrStream) {
			return err
		}
		m.fleet.cfg.Logger.Error("a view stopped, and only the log is read until the view is rebuilt", "err", err)
		m.refused.Store(&err)
		if !m.awaitRebuild(ctx) {
			return nil
		}
		m.refused.Store(nil)
	}
}

// unguard admits readers once the view's checkpoints belong to the log's streams.
func (m *ManagedView) unguard(ctx context.Context) error {
	if m.refused.Load() != nil && m.awaitRebuild(ctx) {
		m.refused.Store(nil)
	}
	return nil
}

// awaitRebuild waits until the view's checkpoints belong to the log's streams. It returns false if ctx ends first.
func (m *ManagedView) awaitRebuild(ctx context.Context) bool {
	for pause.For(ctx, lookEvery) {
		if m.follows(ctx) == nil {
			return true
		}
	}
	return false
}

// follows fails if the view's checkpoints belong to other streams than the log's.
func (m *ManagedView) follows(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	served, err := m.View.Served(ctx)
	for _, cp := range served.At {
		if err == nil && cp.Partition < m.fleet.cfg.Log.Partitions() {
			err = projections.SameStream(ctx, m.fleet.cfg.Log, cp)
		}
	}
	return err
}
