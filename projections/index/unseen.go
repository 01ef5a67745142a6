package index

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

const (
	// fewObjects are so few that each sweep looks whether all of them are found, and not a sample only.
	fewObjects = 100
	sample     = 4
	// alike is how many objects with the same vector as another may stand before it.
	alike = 20
	// same is a score above that of vectors that differ.
	same = 0.9999
)

// unseen returns a function that returns objects of the claim's partition which the store holds with their vectors, and
// whose vectors it does not look at (docs/decisions.md#what-no-search-finds-is-written-again). It looks at a sample
// first, and goes on only if that shows one.
func (v *View) unseen(c *claim) func(context.Context) ([]Object, error) {
	begun, after := false, uuid.Nil
	name := c.of.collection().Name
	return func(ctx context.Context) ([]Object, error) {
		if !begun {
			begun = true
			first, err := v.cfg.Store.Page(ctx, name, uuid.Nil, fewObjects)
			if err == nil && len(first) == fewObjects {
				first, err = v.cfg.Store.Page(ctx, name, uuid.New(), sample)
			}
			if err != nil {
				return nil, err
			}
			if first, err = v.unseenOf(ctx, c, first); err != nil || len(first) == 0 {
				return nil, err
			}
		}
		for {
			page, err := v.cfg.Store.Page(ctx, name, after, sweptAtOnce)
			if err != nil || len(page) == 0 {
				return nil, err
			}
			after = page[len(page)-1].ID
			if found, err := v.unseenOf(ctx, c, page); err != nil || len(found) > 0 {
				return found, err
			}
		}
	}
}

func (v *View) unseenOf(ctx context.Context, c *claim, page []Object) (out []Object, err error) {
	var ids []uuid.UUID
	for i := range page {
		if page[i].Partition == c.partition && !isCanary(&page[i]) {
			ids = append(ids, page[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	name := c.of.collection().Name
	have, err := v.cfg.Store.ByID(ctx, name, ids, WithVectors)
	if err != nil {
		return nil, err
	}
	for i := range have {
		for half, h := range map[projections.Half]*Half{
			projections.QuestionHalf: &have[i].Question, projections.AnswerHalf: &have[i].Answer,
		} {
			if !slices.ContainsFunc(h.Vector, func(x float32) bool { return x != 0 }) { // it is near to nothing
				continue
			}
			hits, err := v.cfg.Store.Near(ctx, name, Near{Half: half, Vector: h.Vector, Limit: alike})
			if err != nil {
				return nil, err
			}
			is := func(n projections.Hit) bool { return n.TurnID == have[i].ID }
			if crowd := len(hits) == alike && hits[alike-1].Score > same; !crowd && !slices.ContainsFunc(hits, is) {
				out = append(out, have[i])
				break
			}
		}
	}
	return out, nil
}
