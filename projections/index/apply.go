package index

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// Apply implements projections.Sink. Objects are written first, then the checkpoint. A batch that does not come to its
// end is applied again under a new claim, and what the first try still writes later is found by Sweep.
func (v *View) Apply(ctx context.Context, b projections.Batch) error {
	v.mu.Lock()
	c := v.claims[b.From.Partition]
	v.mu.Unlock()
	return v.apply(ctx, c, b)
}

func (v *View) apply(ctx context.Context, c *claim, b projections.Batch) error {
	if c == nil {
		return projections.ErrFenced
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != b.From.Epoch || c.at.Seq != b.From.Seq || c.of.Generation != b.From.Generation {
		return projections.ErrFenced
	}
	if err := c.holds(ctx); err != nil {
		return err
	}
	out, err := c.plans.plan(ctx, b.Events)
	if err != nil {
		return err
	}
	written, deleted := out.split()
	if deleted, err = c.withParked(ctx, b.Parked, out, deleted); err != nil {
		return err
	}
	again := writtenBefore(b.From.Seq < c.doubtful)
	if err := v.write(ctx, c, written, deleted, again, v.embedder(batchPatience)); err != nil {
		return err
	}
	if len(written) > 0 {
		if err := v.flush(ctx, c); err != nil {
			return err
		}
	}
	at := c.at
	at.Created, at.Seq, at.EventID, at.Deleted = b.To.Created, b.To.Seq, b.To.EventID, max(at.Deleted, out.deleted)
	if c.fills {
		at.Settled = at.Seq
	}
	if err := c.commit(ctx, at); err != nil {
		return err
	}
	if out.deleted > 0 {
		select {
		case v.deleted <- struct{}{}:
		default:
		}
	}
	return nil
}

// withParked adds what parked events delete. An event is parked since the store refuses an object that it brings; what
// it takes away has to go all the same.
func (c *claim) withParked(
	ctx context.Context, parked []projections.Judged, out *changes, deleted []uuid.UUID,
) ([]uuid.UUID, error) {
	gone, err := c.plans.plan(ctx, parked)
	if err != nil {
		return nil, err
	}
	out.deleted = max(out.deleted, gone.deleted)
	_, more := gone.split()
	return append(deleted, more...), nil
}

// writtenBefore says whether objects may have been written before, with vectors that can be taken over.
type writtenBefore bool

const mayStand writtenBefore = true

// write deletes and writes objects, with the vectors of a source. Deletions go first: they must not wait for the
// embedder.
func (v *View) write(
	ctx context.Context, c *claim, written []Object, deleted []uuid.UUID, again writtenBefore, vectors source,
) error {
	name := c.of.collection().Name
	if len(deleted) > 0 {
		if err := v.cfg.Store.Delete(ctx, name, deleted); err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return nil
	}
	var stand map[uuid.UUID]digest
	if again == mayStand || c.reuse != name {
		var err error
		if stand, err = v.takeOver(ctx, c, written); err != nil {
			return err
		}
	}
	if c.of.Model == v.cfg.Embedder.Model() && v.mayEmbedFor(c) {
		v.fill(c, written, vectors(ctx, written))
	}
	if c.reuse == name {
		// A store that broke off while it wrote may have an object without its vectors, and would take the same
		// vectors for no change (docs/decisions.md#what-may-stand-is-deleted-before-it-is-written-again).
		if err := v.cfg.Store.Delete(ctx, name, slices.Collect(maps.Keys(stand))); err != nil {
			return err
		}
	}
	return v.put(ctx, c, written)
}

// refusalPauses are the pauses after which refused objects are tried again. An object that is refused each time, while
// the store takes others, is refused for good.
var refusalPauses = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// put writes objects. Its error is projections.Permanent if the store refuses some of them for good. Then put has
// deleted what the store had of these, since nothing will overwrite it.
func (v *View) put(ctx context.Context, c *claim, objects []Object) error {
	name := c.of.collection().Name
	var refused *Refused
	err := v.cfg.Store.Put(ctx, name, objects)
	if errors.As(err, &refused) {
		other, failed := v.stripOthers(ctx, c, objects)
		if failed != nil {
			return failed
		}
		if other {
			err = v.cfg.Store.Put(ctx, name, objects)
		}
	}
	for n := 0; errors.As(err, &refused); n++ {
		if err := v.probe(ctx, c); err != nil {
			return err
		}
		ids := refused.IDs
		final := n == len(refusalPauses) || !slices.ContainsFunc(ids, func(id uuid.UUID) bool { return !c.refused[id] })
		if final {
			if c.refused == nil {
				c.refused = map[uuid.UUID]bool{}
			}
			for _, id := range ids {
				c.refused[id] = true
			}
			return cmp.Or(v.cfg.Store.Delete(ctx, name, ids), projections.Permanent(err))
		}
		if !pause.For(ctx, refusalPauses[n]) {
			return err
		}
		objects = slices.DeleteFunc(slices.Clone(objects), func(o Object) bool {
			return !slices.Contains(ids, o.ID)
		})
		err = v.cfg.Store.Put(ctx, name, objects)
	}
	return err
}

// probe writes an object that no store refuses for what it holds. A store that does not take it takes nothing now. A
// collection that the store has made by itself, in the place of a lost one, may refuse what the lost one took.
func (v *View) probe(ctx context.Context, c *claim) error {
	if there, err := v.holds(ctx, c.of); err != nil || !there {
		return cmp.Or(err, projections.Unavailable(errLost))
	}
	return v.flush(ctx, c)
}

// takeOver copies the vectors that the claim's former collection has of the same texts by the same model. It returns
// which of the objects that collection has, and as what.
func (v *View) takeOver(
	ctx context.Context, c *claim, objects []Object,
) (stand map[uuid.UUID]digest, err error) {
	byID := make(map[uuid.UUID]*Object, len(objects))
	ids := make([]uuid.UUID, len(objects))
	for i := range objects {
		ids[i], byID[objects[i].ID] = objects[i].ID, &objects[i]
	}
	have, err := v.cfg.Store.ByID(ctx, c.reuse, ids, WithVectors)
	if err != nil {
		return nil, err
	}
	stand = map[uuid.UUID]digest{}
	for _, h := range have {
		stand[h.ID] = h.digest()
		o := byID[h.ID]
		for _, pair := range [][2]*Half{{&o.Question, &h.Question}, {&o.Answer, &h.Answer}} {
			if pair[0].Digest == pair[1].Digest && pair[0].Vector == nil && pair[1].Vector != nil &&
				pair[1].fits(c.dimensions) {
				pair[0].Vector = pair[1].Vector
				v.metrics.vectors.WithLabelValues("taken over").Inc()
			}
		}
	}
	return stand, nil
}
