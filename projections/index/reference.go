package index

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// reference folds the log by the rules of the index. For one caller.
type reference struct {
	*View
	folds map[int]*fold
	at    []projections.Checkpoint
}

var _ projections.Reference = (*reference)(nil)

// NewReference implements projections.View.
func (v *View) NewReference(_ context.Context, partitions int) (projections.Reference, error) {
	r := &reference{View: v, folds: map[int]*fold{}}
	for k := range partitions {
		r.folds[k] = newFold(&v.cfg, Collection{}, k)
		r.at = append(r.at, projections.Checkpoint{Partition: k})
	}
	return r, nil
}

// Claim implements projections.Sink.
func (r *reference) Claim(_ context.Context, partition int) (projections.Checkpoint, error) {
	return r.at[partition], nil
}

// Drop implements projections.Reference.
func (r *reference) Drop(context.Context) error { return nil }

// Apply implements projections.Sink.
func (r *reference) Apply(ctx context.Context, b projections.Batch) error {
	r.at[b.To.Partition] = b.To
	return r.folds[b.To.Partition].take(ctx, b.Events)
}

// compareRounds bounds how often a turn that differs is compared again: the view may be writing it.
const compareRounds = 8

// Compare implements projections.Reference, by the pass of a sweep.
func (r *reference) Compare(
	ctx context.Context, sample int, fold projections.Fold, report func(projections.Difference) error,
) (int, error) {
	of, _, err := r.served(ctx)
	if err != nil {
		return 0, err
	}
	sessions := map[string]bool{}
	if sample > 0 {
		if err := r.eachObject(ctx, of, func(o *Object) { sessions[o.Session] = true }); err != nil {
			return 0, err
		}
		sessions = sampled(sessions, sample)
	}
	if err := r.catchUp(ctx, sessions, sample > 0, fold); err != nil {
		return 0, err
	}
	p := pass{1, r.folds, map[int][]Object{}}
	err = r.eachObject(ctx, of, func(o *Object) {
		if sample <= 0 {
			sessions[o.Session] = true
		}
		if sessions[o.Session] {
			p.meet(o)
		}
	})
	if err != nil {
		return 0, err
	}
	p.miss()
	differ := slices.Concat(slices.Collect(maps.Values(p.differ))...)
	different, err := r.differences(ctx, of, differ)
	for round := 1; err == nil && len(different) > 0 && round < compareRounds; round++ {
		pause.For(ctx, time.Duration(round)*200*time.Millisecond)
		if err := r.catchUp(ctx, sessions, sample > 0, fold); err != nil {
			return 0, err
		}
		different, err = r.differences(ctx, of, differ)
	}
	for _, f := range r.folds {
		for _, e := range f.objects {
			sessions[e.session] = true
		}
	}
	for _, d := range different {
		if err == nil {
			err = report(d)
		}
	}
	return len(sessions), err
}

// sampled draws some of the sessions.
func sampled(all map[string]bool, most int) map[string]bool {
	ids := slices.Sorted(maps.Keys(all))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) //nolint:gosec // no secret
	out := map[string]bool{}
	for _, id := range ids[:min(most, len(ids))] {
		out[id] = true
	}
	return out
}

// catchUp folds the log into the reference up to the view's positions: all of it, or only some sessions.
func (r *reference) catchUp(ctx context.Context, sessions map[string]bool, only bool, fold projections.Fold) error {
	for k, f := range r.folds {
		at, err := r.Applied(ctx, k)
		if err != nil {
			return err
		}
		if !only {
			if err := fold.Reach(ctx, at); err != nil { // nothing is behind it if the view is filled again
				return err
			}
			continue
		}
		for id := range sessions {
			if events.Partition(id, len(r.folds)) == k {
				f.forget(id)
				if err := fold.Session(ctx, id, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// differences returns what the two sides say now of objects that differed, one difference a turn.
func (r *reference) differences(
	ctx context.Context, of pointer, differed []Object,
) (out []projections.Difference, err error) {
	slices.SortFunc(differed, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), slices.Compare(a.ID[:], b.ID[:]))
	})
	var ids []uuid.UUID
	for i := range differed {
		ids = append(ids, differed[i].ID)
	}
	found, err := r.cfg.Store.ByID(ctx, of.collection().Name, ids, WithoutVectors)
	is, want := map[uuid.UUID]digest{}, map[uuid.UUID]digest{}
	for i := range found {
		is[found[i].ID] = found[i].digest()
	}
	for _, f := range r.folds {
		for _, id := range ids {
			if e, known := f.objects[id]; known {
				want[id] = e.digest
			}
		}
	}
	for _, o := range differed {
		if view, log := is[o.ID], want[o.ID]; view != log {
			out = append(out, projections.Difference{
				SessionID: o.Session, What: "turn " + o.ID.String(), View: view.String(), Log: log.String(),
			})
		}
	}
	return out, err
}
