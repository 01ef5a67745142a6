package memory

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// Served implements projections.View.
func (v *View) Served(context.Context) (projections.Served, error) {
	g := v.served.Load()
	out := projections.Served{Store: g.store, Generation: g.number}
	for k := range g.parts {
		if p := g.parts[k].Load(); p != nil {
			p.applying.Lock()
			out.At = append(out.At, g.named(p.at))
			p.applying.Unlock()
		}
	}
	return out, nil
}

// NewGeneration implements projections.Rebuildable. The generation takes as much memory as the view until the swap. It
// ends with the process.
func (v *View) NewGeneration(context.Context) (projections.Generation, error) {
	served := v.served.Load()
	g := &generation{
		limits: served.limits, rules: served.rules, now: served.now, seed: maphash.MakeSeed(),
		number: v.last.Add(1), store: served.store, view: v,
		opened: opened{most: served.opened.most, packer: served.opened.packer},
	}
	if !v.next.CompareAndSwap(nil, g) {
		return nil, projections.ErrRebuilding
	}
	return g, nil
}

var (
	_ projections.Rebuildable = (*View)(nil)
	_ projections.Generation  = (*generation)(nil)
)

// Name of the projection.
func (v *generation) Name() string { return recent.Name }

// Number implements projections.Generation.
func (v *generation) Number() uint64 { return v.number }

// Swap implements projections.Generation. It stops the runners of both generations meanwhile, but no reader.
func (v *generation) Swap(ctx context.Context, check projections.SwapCheck) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.view.next.Load() != v {
		return projections.ErrFenced
	}
	old := v.view.served.Load()
	behind := false
	var pairs [][2]*partition
	for k := range events.Buckets {
		was := old.parts[k].Load()
		if was == nil {
			continue
		}
		is, err := v.part(k)
		if err != nil {
			return err
		}
		was.applying.Lock()
		defer was.applying.Unlock()
		is.applying.Lock()
		defer is.applying.Unlock()
		behind = behind || check == projections.ReachFormer && is.at.Seq < was.at.Seq
		pairs = append(pairs, [2]*partition{was, is})
	}
	for _, p := range pairs {
		p[0].at.Epoch++
	}
	if behind {
		return projections.ErrNotCaughtUp
	}
	for _, p := range pairs {
		// The higher epoch makes every runner claim the served generation anew.
		p[1].at.Epoch = max(p[0].at.Epoch, p[1].at.Epoch) + 1
	}
	v.view.served.Store(v)
	v.view.next.CompareAndSwap(v, nil)
	for _, p := range pairs {
		p[0].move()
	}
	return nil
}

// Drop implements projections.Generation; the garbage collector does the rest.
func (v *generation) Drop(context.Context) error {
	v.view.next.CompareAndSwap(v, nil)
	return nil
}

// NewReference implements projections.View.
func (v *View) NewReference(_ context.Context, partitions int) (projections.Reference, error) {
	g := v.served.Load()
	return recent.NewReference(v, g.limits, g.now, partitions), nil
}

// Sessions implements recent.Listed.
func (v *View) Sessions(ctx context.Context, partition, _ int, take func(string) error) error {
	p, err := v.served.Load().partition(ctx, partition)
	if err != nil {
		return err
	}
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.RLock()
		ids := slices.Collect(maps.Keys(s.sessions))
		s.mu.RUnlock()
		for _, id := range ids {
			if err := take(id); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
