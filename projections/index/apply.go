package index

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

// Apply implements projections.Sink. Objects are written first, then the canary, then the checkpoint. A batch that does
// not come to its end is applied again under a new claim, and what the first try still writes later is found by Sweep.
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
	if err := v.write(ctx, c, written, deleted, b.From.Seq < c.doubtful); err != nil {
		return err
	}
	if err := v.putCanary(ctx, c, b.To.Seq); err != nil {
		return err
	}
	at := c.at.forward(b.To, v.cfg.Now())
	at.Deleted = max(at.Deleted, out.deleted)
	return c.commit(ctx, at)
}

// write deletes and writes objects. Deletions go first: they must not wait for the embedder.
func (v *View) write(ctx context.Context, c *claim, written []Object, deleted []uuid.UUID, again bool) error {
	name := c.of.collection().Name
	if len(deleted) > 0 {
		if err := v.cfg.Store.Delete(ctx, name, deleted); err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return nil
	}
	for i := range written {
		written[i].Epoch = c.epoch
	}
	if again || c.reuse != name {
		if err := v.takeOver(ctx, c.reuse, written); err != nil {
			return err
		}
	}
	if c.of.Model == v.cfg.Embedder.Model() {
		v.embed(ctx, written)
	}
	return v.cfg.Store.Put(ctx, name, written)
}

// takeOver copies the vectors that a collection has of the same texts by the same model.
func (v *View) takeOver(ctx context.Context, from string, objects []Object) error {
	byID := make(map[uuid.UUID]*Object, len(objects))
	ids := make([]uuid.UUID, len(objects))
	for i := range objects {
		ids[i], byID[objects[i].TurnID] = objects[i].TurnID, &objects[i]
	}
	have, err := v.cfg.Store.ByID(ctx, from, ids, WithVectors)
	if err != nil {
		return err
	}
	for _, h := range have {
		o := byID[h.TurnID]
		for _, pair := range [][2]*Half{{&o.Question, &h.Question}, {&o.Answer, &h.Answer}} {
			if pair[0].Digest == pair[1].Digest && pair[1].Vector != nil {
				pair[0].Vector = pair[1].Vector
				v.metrics.vectors.WithLabelValues("taken over").Inc()
			}
		}
	}
	return nil
}
