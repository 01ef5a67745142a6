package index

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

const (
	// looked is of how many objects each sweep looks whether they are found.
	looked = 100
	// foundOf is of how many objects a search looks that found less than it was asked for.
	foundOf = 8
	// foundFor is how long searches go on without such a look; a store that is killed takes longer to be back.
	foundFor = time.Second
)

// findUnseen returns a function that returns objects of the claim's partition which the store holds with their vectors,
// and whose vectors it does not look at (docs/decisions.md#what-no-search-finds-is-written-again). It looks at a sample
// first, and goes on only if that shows one.
func (v *View) findUnseen(c *claim) func(context.Context) ([]Object, error) {
	begun, after := false, uuid.Nil
	name := c.of.collection().Name
	return func(ctx context.Context) ([]Object, error) {
		if !begun {
			begun = true
			first, err := v.cfg.Store.Page(ctx, name, uuid.Nil, looked)
			if err == nil && len(first) == looked {
				first, err = v.cfg.Store.Page(ctx, name, uuid.New(), looked)
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

// unseenOf asks for the page's objects of the claim's partition.
func (v *View) unseenOf(ctx context.Context, c *claim, page []Object) ([]Object, error) {
	var ids []uuid.UUID
	for i := range page {
		if page[i].Partition == c.partition && !isProbe(&page[i]) {
			ids = append(ids, page[i].ID)
		}
	}
	return v.unfound(ctx, c.of.collection().Name, ids)
}

// unfound searches among objects alone, by any vector: those that the answer lacks are not looked at.
func (v *View) unfound(ctx context.Context, name string, ids []uuid.UUID) ([]Object, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	have, err := v.cfg.Store.ByID(ctx, name, ids, WithVectors)
	if err != nil {
		return nil, err
	}
	missing := map[uuid.UUID]bool{}
	for _, half := range []projections.Half{projections.QuestionHalf, projections.AnswerHalf} {
		near := Near{Half: half}
		for i := range have {
			h := &have[i].Question
			if half == projections.AnswerHalf {
				h = &have[i].Answer
			}
			if slices.ContainsFunc(h.Vector, func(x float32) bool { return x != 0 }) { // else it is near to nothing
				near.Vector, near.Among = h.Vector, append(near.Among, have[i].ID)
			}
		}
		if near.Limit = len(near.Among); near.Limit == 0 {
			continue
		}
		hits, err := v.cfg.Store.Near(ctx, name, near)
		if err != nil {
			return nil, err
		}
		for _, id := range near.Among {
			if !slices.ContainsFunc(hits, func(n projections.Hit) bool { return n.TurnID == id }) {
				missing[id] = true
			}
		}
	}
	return slices.DeleteFunc(have, func(o Object) bool { return !missing[o.ID] }), nil
}

// mayMiss fails if a search that found less than it was asked for may have missed turns: the store does not look at
// vectors that it holds. It looks at a few objects, and not again soon after they were found.
func (v *View) mayMiss(ctx context.Context, p pointer) error {
	v.mu.Lock()
	recently := v.cfg.Now().Sub(v.found) < foundFor
	v.mu.Unlock()
	if recently {
		return nil
	}
	name := p.collection().Name
	page, err := v.cfg.Store.Page(ctx, name, uuid.New(), foundOf)
	if err == nil && len(page) < foundOf {
		page, err = v.cfg.Store.Page(ctx, name, uuid.Nil, foundOf)
	}
	ids := make([]uuid.UUID, 0, len(page))
	for i := range page {
		if !isProbe(&page[i]) {
			ids = append(ids, page[i].ID)
		}
	}
	// Some may be deleted or written again meanwhile: those that are not found are looked for once more.
	for range 2 {
		var missing []Object
		if err == nil {
			missing, err = v.unfound(ctx, name, ids)
		}
		ids = ids[:0]
		for i := range missing {
			ids = append(ids, missing[i].ID)
		}
	}
	if err == nil && len(ids) > 0 {
		return projections.Unavailable(errUnseen)
	}
	if err == nil {
		v.mu.Lock()
		v.found = v.cfg.Now()
		v.mu.Unlock()
	}
	return err
}

// errUnseen: the store was killed before its vectors were in its files.
var errUnseen = errors.New("the store does not find vectors that it holds; they are written again within a minute")
