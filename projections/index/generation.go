package index

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// generation is a collection that one rebuild fills.
type generation struct {
	*View
	of     pointer
	notes  desk.Notes
	former pointer
	// gone is the generation that Drop removes.
	gone pointer

	// dimensions of the vectors that the endpoint makes; 0: it does not answer.
	dimensions int
	claiming   sync.Mutex
	own        map[int]*claim
}

var _ projections.Generation = (*generation)(nil)

// NewGeneration implements projections.Rebuildable.
func (v *View) NewGeneration(ctx context.Context) (projections.Generation, error) {
	p, notes, err := v.ensure(ctx, move)
	if err != nil {
		return nil, err
	}
	if err := v.dropOthers(ctx, p); err != nil {
		return nil, err
	}
	// The number is spent before anything is made, so that no other rebuild ever uses it.
	now, revision, err := v.pointer(ctx, notes)
	if err != nil {
		return nil, err
	}
	now.Last++
	if err := notes.Commit(ctx, pointerKey, now, pointerKey, revision); err != nil {
		return nil, failed(rebuilding(err), "begin a generation")
	}
	log, err := v.log(ctx)
	if err != nil {
		return nil, err
	}
	n := pointer{
		Store: now.Store, Log: log, Former: now.Former, Generation: now.Last, Last: now.Last,
		Model: v.cfg.Embedder.Model(), contents: v.cfg.contents(), BegunAt: v.cfg.Now().UTC(),
	}
	if n.Clean, err = v.clean(ctx); err != nil {
		return nil, err
	}
	if err := v.cfg.Store.Create(ctx, n.collection()); err != nil {
		return nil, err
	}
	g := &generation{View: v, of: n, notes: notes, former: now, gone: n, own: map[int]*claim{}}
	asking, cancel := context.WithTimeout(ctx, dimensionsDeadline)
	defer cancel()
	if g.dimensions, err = v.cfg.Embedder.Dimensions(asking); err != nil {
		v.cfg.Logger.Warn("the index is rebuilt with the vectors that it has; others are added later", "err", err)
	}
	return g, nil
}

// dimensionsDeadline bounds how long a rebuild waits for the endpoint before it begins.
const dimensionsDeadline = 5 * time.Second

func rebuilding(err error) error {
	if errors.Is(err, jetlog.ErrConflict) {
		return projections.ErrRebuilding
	}
	return err
}

// dropOthers drops what earlier rebuilds and late writes have left behind. The caller has the lease of rebuilds.
func (v *View) dropOthers(ctx context.Context, served pointer) error {
	all, err := v.cfg.Store.List(ctx)
	for _, c := range all {
		if err == nil && c != served.collection() {
			err = v.cfg.Store.Drop(ctx, c.Name)
			v.metrics.swept.WithLabelValues("collection").Inc()
		}
	}
	return err
}

// Number implements projections.Generation.
func (g *generation) Number() uint64 { return g.of.Generation }

// Claim implements projections.Sink.
func (g *generation) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	c, err := g.claim(ctx, g.of, g.notes, partition, !admitReopening)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	c.reuse, c.dimensions, c.fills = g.former.collection().Name, g.dimensions, true
	g.claiming.Lock()
	defer g.claiming.Unlock()
	g.own[partition] = c
	return c.at.checkpoint(g.of, partition, c.epoch), nil
}

// Apply implements projections.Sink.
func (g *generation) Apply(ctx context.Context, b projections.Batch) error {
	g.claiming.Lock()
	c := g.own[b.From.Partition]
	g.claiming.Unlock()
	return g.apply(ctx, c, b)
}

// Swap implements projections.Generation. It closes the former generation's partitions, compares, and writes the
// pointer if nobody has written it since. A runner that opens a closed partition writes the pointer first; so either
// the swap counts or the runner's claim does.
func (g *generation) Swap(ctx context.Context, check projections.SwapCheck) error {
	now, revision, err := g.pointer(ctx, g.notes)
	if err != nil {
		return err
	}
	if now.Generation != g.former.Generation || now.Last != g.of.Generation {
		return projections.ErrFenced
	}
	for k := range g.cfg.Partitions {
		behind, err := g.closeFormer(ctx, k)
		if err != nil {
			return failed(fenced(err), "close partition %d", k)
		}
		if behind && check == projections.ReachFormer {
			return projections.ErrNotCaughtUp
		}
	}
	g.of.ServedAt = g.cfg.Now().UTC()
	err = g.notes.Commit(ctx, pointerKey, g.of, pointerKey, revision)
	if errors.Is(err, jetlog.ErrConflict) {
		return projections.ErrNotCaughtUp
	}
	if err != nil {
		return failed(err, "swap the generations")
	}
	g.gone = g.former
	return g.cfg.Store.Serve(ctx, g.of.collection().Name)
}

// closeTries is how often a swap tries to close a claim, since runners may claim the partition at the same time.
const closeTries = 10

// closeFormer fences the former generation's runner of a partition, and reports whether that generation is further.
func (g *generation) closeFormer(ctx context.Context, partition int) (behind bool, err error) {
	key := g.former.key("claim", partition)
	for range closeTries {
		var of claimed
		var revision uint64
		if revision, err = g.notes.Read(ctx, key, &of); err == nil {
			_, err = g.notes.Write(ctx, key, claimed{Epoch: of.Epoch + 1, Closed: true}, revision)
		}
		if !errors.Is(err, jetlog.ErrConflict) {
			break
		}
	}
	var at place
	if err == nil {
		_, err = g.notes.Read(ctx, g.former.key("at", partition), &at)
	}
	own := g.own[partition]
	return own == nil && at.Seq > 0 || own != nil && at.Seq > own.at.Seq, err
}

// Drop implements projections.Generation.
func (g *generation) Drop(ctx context.Context) error {
	if err := g.cfg.Store.Drop(ctx, g.gone.collection().Name); err != nil {
		return err
	}
	for k := range g.cfg.Partitions {
		for _, kind := range []string{"at", "claim"} {
			if err := g.notes.Drop(ctx, g.gone.key(kind, k)); err != nil {
				return err
			}
		}
	}
	return nil
}
