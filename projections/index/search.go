package index

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// Nearest returns the turns that are nearest to a vector, the nearest first, each once with its nearer half, and the
// position of each partition that the index has applied. half is empty for both. If it returns as many turns as the
// limit or more, there may be others as near as the last of them, or farther. What it returns must be compared with the
// truth before anybody sees it: the index may lag, and may hold what was redacted.
func (v *View) Nearest(
	ctx context.Context, half projections.Half, n Near,
) (found []projections.Hit, at []events.Position, err error) {
	p, notes, err := v.served(ctx)
	if err != nil {
		return nil, nil, err
	}
	if p.Model != v.cfg.Embedder.Model() {
		return nil, nil, projections.Unavailable(projections.ErrOtherModel)
	}
	if p.Anonymous == some && n.IdentityID == "" {
		return nil, nil, projections.Unavailable(projections.ErrSomeAnonymous)
	}
	if at, err = v.places(ctx, p, notes); err != nil {
		return nil, nil, err
	}
	halves := []projections.Half{projections.QuestionHalf, projections.AnswerHalf}
	if half != "" {
		halves = []projections.Half{half}
	}
	lists := make([][]projections.Hit, len(halves))
	g, asking := errgroup.WithContext(ctx)
	for i, h := range halves {
		ask := n
		ask.Half = h
		g.Go(func() (err error) {
			lists[i], err = v.cfg.Store.Near(asking, p.collection().Name, ask)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		// A store refuses a vector of another length than its own.
		if d, unknown := v.dimensions(ctx, p.collection().Name); unknown == nil && d != 0 && d != len(n.Vector) {
			err = projections.Unavailable(projections.ErrOtherModel)
		}
		v.mu.Lock()
		v.found = time.Time{}
		v.mu.Unlock()
		return nil, nil, err
	}
	if slices.ContainsFunc(lists, func(l []projections.Hit) bool { return len(l) < n.Limit }) {
		if err := v.mayMiss(ctx, p); err != nil {
			return nil, nil, err
		}
	}
	// A half that is farther than the end of a full list is left out: that list may lack the turn's nearer half.
	floor := math.Inf(-1)
	for _, list := range lists {
		if len(list) >= n.Limit {
			floor = max(floor, list[len(list)-1].Score)
		}
	}
	all := slices.DeleteFunc(slices.Concat(lists...), func(h projections.Hit) bool { return h.Score < floor })
	return nearer(all), at, nil
}

// At returns the position of each partition that the index has applied.
func (v *View) At(ctx context.Context) ([]events.Position, error) {
	p, notes, err := v.served(ctx)
	if err != nil {
		return nil, err
	}
	return v.places(ctx, p, notes)
}

func (v *View) places(ctx context.Context, p pointer, notes desk.Notes) ([]events.Position, error) {
	at := make([]events.Position, v.cfg.Partitions)
	g, ctx := errgroup.WithContext(ctx)
	for k := range at {
		g.Go(func() error {
			var is place
			_, err := notes.Read(ctx, p.key("at", k), &is)
			at[k] = events.Position{Partition: k, Seq: is.Seq}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, projections.Unavailable(err)
	}
	return at, nil
}

// nearer keeps the nearer half of each turn, the nearest turn first.
func nearer(all []projections.Hit) []projections.Hit {
	slices.SortFunc(all, func(a, b projections.Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), slices.Compare(a.TurnID[:], b.TurnID[:]),
			cmp.Compare(b.Half, a.Half))
	})
	seen := map[uuid.UUID]bool{}
	return slices.DeleteFunc(all, func(n projections.Hit) bool {
		again := seen[n.TurnID]
		seen[n.TurnID] = true
		return again
	})
}
