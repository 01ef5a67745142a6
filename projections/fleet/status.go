package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

const (
	// stateNotFed is the state of a view in a store that other processes feed, if any.
	stateNotFed = "not_fed"
	stateFailed = "failed"
)

// Status reports how far everything is that this process feeds.
func (f *Fleet) Status(ctx context.Context) (out []projections.Status) {
	for _, s := range f.feeds {
		if s.view == nil || s.view.isFed() {
			out = append(out, s.Runner.Status(ctx, time.Now())...)
		}
	}
	return out
}

// Projections returns how far everything is that this process feeds, how far the generations are that its rebuilds
// fill, and what the stores report of the views that others feed.
func (f *Fleet) Projections(ctx context.Context) (out []projections.Status, _ error) {
	// Rebuilds are read before what is served, so that a rebuild that ends in between shows in at least one of the two.
	var filling []projections.Status
	for _, m := range f.views {
		if r := m.last.Load(); r != nil {
			for _, s := range r.Status(ctx, time.Now()) {
				s.Rebuildable = true
				filling = append(filling, s)
			}
		}
	}
	// A view may be opened meanwhile: it is shown as it was before.
	fed := map[*ManagedView]bool{nil: true}
	for _, m := range f.views {
		fed[m] = m.isFed()
	}
	for _, s := range f.feeds {
		if fed[s.view] {
			var number uint64
			var outdated error
			var asking sync.WaitGroup // at once, since a store may hang
			asking.Go(func() { number = s.view.generation(ctx) })
			asking.Go(func() { outdated = s.view.outdated(ctx) })
			status := s.Runner.Status(ctx, time.Now())
			asking.Wait()
			begun, done := s.view.rebuilt()
			for _, one := range status {
				one.Generation, one.Rebuildable = number, s.view.rebuildable()
				one.RebuildBegun, one.RebuildDone = begun, done
				if outdated != nil && one.State == projections.Live {
					one.State, one.LastError = projections.Outdated, outdated.Error()
				}
				out = append(out, one)
			}
		}
	}
	asked, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	for _, m := range f.views {
		if !fed[m] && !m.InMemory {
			out = append(out, m.stored(asked)...)
		}
	}
	return append(out, filling...), nil
}

func (m *ManagedView) rebuildable() bool { return m != nil && m.Rebuildable != nil }

// rebuilt returns when the last rebuild of this process ran, if it was done.
func (m *ManagedView) rebuilt() (begun, done time.Time) {
	if m == nil || m.last.Load() == nil {
		return time.Time{}, time.Time{}
	}
	return m.last.Load().Ran()
}

// outdated returns why the view has to be rebuilt though it follows the log; nil if it need not be, or does not tell.
func (m *ManagedView) outdated(ctx context.Context) error {
	if m == nil || m.Outdated == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	return m.Outdated(ctx)
}

// generation returns the served generation; 0 if the view has no generations, or does not answer.
func (m *ManagedView) generation(ctx context.Context) uint64 {
	if !m.rebuildable() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	served, err := m.View.Served(ctx)
	if err != nil {
		m.fleet.cfg.Logger.Debug("a view does not tell its generation", "projection", m.View.Name(), "err", err)
	}
	return served.Generation
}

// stored returns a view's status by its stored checkpoints, compared with the log.
func (m *ManagedView) stored(ctx context.Context) []projections.Status {
	served, silent := m.View.Served(ctx)
	out := make([]projections.Status, m.fleet.cfg.Log.Partitions())
	var g errgroup.Group
	for k := range out {
		g.Go(func() error {
			out[k] = m.storedStatus(ctx, served.Of(k), silent)
			out[k].Name, out[k].Generation = m.View.Name(), served.Generation
			return nil
		})
	}
	_ = g.Wait() // what is wrong stands in each status
	return out
}

func (m *ManagedView) storedStatus(ctx context.Context, cp projections.Checkpoint, err error) projections.Status {
	log := m.fleet.cfg.Log
	s := projections.Status{Partition: cp.Partition, Position: cp.Position(), State: stateNotFed}
	var head events.Position
	if err == nil {
		head, err = log.Head(ctx, cp.Partition)
	}
	if err != nil {
		s.State, s.HeadUnknown, s.LastError = projections.Unknown, true, err.Error()
		return s
	}
	s.Head = head
	if why := m.waits.Load(); why != nil && !m.opened.Load() {
		s.LastError = (*why).Error()
		if m.Feeds {
			s.State = projections.Retrying
		}
	}
	if err = projections.SameStream(ctx, log, cp); err != nil {
		s.LastError = err.Error()
	}
	if errors.Is(err, projections.ErrStream) {
		s.State, s.LagUnknown = stateFailed, true
	} else {
		s.Measure(ctx, log, time.Now())
	}
	return s
}

// Check is a store that should answer.
type Check struct {
	Store string
	Probe func(context.Context) error
}

// Checks returns the stores of the views that this process feeds or reads. A probe's error is an *events.NotReady,
// whose Reason says whether the store is down or the view may not be read.
func (f *Fleet) Checks() (out []Check) {
	for _, m := range f.views {
		if m.Store != "" && (m.Feeds || m.Reads) {
			out = append(out, Check{m.Store, m.ready})
		}
	}
	return out
}

func (m *ManagedView) ready(ctx context.Context) error {
	name := m.View.Name()
	if why := m.refused.Load(); why != nil && errors.Is(*why, projections.ErrStream) {
		says := "not read: the view " + name + " does not follow this log; turnledger projections rebuild " + name
		return &events.NotReady{Reason: says, Err: *why}
	}
	if _, err := m.Applied(ctx, 0); err != nil {
		return &events.NotReady{Reason: m.Reason, Err: err}
	}
	return nil
}
