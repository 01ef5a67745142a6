package index

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// reference folds the log by the rules of the index, and keeps a digest of each object: about 150 bytes a turn. For one
// caller.
type reference struct {
	*View
	parts []*referencePart
}

type referencePart struct {
	at      projections.Checkpoint
	plans   *planner
	objects map[uuid.UUID]expected
}

// expected is what the index must hold of a turn.
type expected struct{ session, digest string }

var _ projections.Reference = (*reference)(nil)

// NewReference implements projections.View.
func (v *View) NewReference(_ context.Context, partitions int) (projections.Reference, error) {
	r := &reference{View: v}
	for k := range partitions {
		r.parts = append(r.parts, &referencePart{
			at: projections.Checkpoint{Partition: k}, plans: newPlanner(&v.cfg, k), objects: map[uuid.UUID]expected{},
		})
	}
	return r, nil
}

// Claim implements projections.Sink.
func (r *reference) Claim(_ context.Context, partition int) (projections.Checkpoint, error) {
	return r.parts[partition].at, nil
}

// Drop implements projections.Reference.
func (r *reference) Drop(context.Context) error { return nil }

// Apply implements projections.Sink.
func (r *reference) Apply(ctx context.Context, b projections.Batch) error {
	p := r.parts[b.From.Partition]
	out, err := p.plans.plan(ctx, b.Events)
	if err != nil {
		return err
	}
	for id, o := range out.objects {
		if o == nil {
			delete(p.objects, id)
		} else {
			p.objects[id] = expected{o.Session, o.digest()}
		}
	}
	p.at = b.To
	return nil
}

// digest of what verify compares: the ids, the version, the identity, the start, and what was embedded.
func (o *Object) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d\x00%s\x00%s\x00%s", o.ID, o.Session,
		o.Identity, o.StartSeq, o.Version, o.CreatedAt.UTC().Format(time.RFC3339Nano), o.Question.Digest,
		o.Answer.Digest))
	return hex.EncodeToString(sum[:8])
}

const (
	pageOfObjects = 1000
	// compareRounds bounds how often a turn that differs is compared again: the view may have been writing it.
	compareRounds = 5
	// stalled is how long the view may stand still before a turn that it will write again counts as it is.
	stalled = 10 * time.Second
)

// Compare implements projections.Reference.
func (r *reference) Compare(
	ctx context.Context, sample int, fold projections.Fold, report func(projections.Difference) error,
) (int, error) {
	found, err := r.list(ctx)
	if err != nil {
		return 0, err
	}
	sessions := map[string]bool{}
	for _, o := range found {
		sessions[o.Session] = true
	}
	if sample > 0 {
		sessions = sampled(sessions, sample)
	}
	if err := r.reach(ctx, sessions, sample > 0, fold); err != nil {
		return 0, err
	}
	different := r.differences(found, sessions, sample > 0)
	var behind lag
	// The last comparison comes after the look that says that nothing is waited for.
	for round, more := 0, true; len(different) > 0 && (round < compareRounds || more); round++ {
		if more, err = behind.waits(ctx, r, different); err != nil {
			return 0, err
		}
		pause.For(ctx, time.Duration(min(round, compareRounds))*200*time.Millisecond)
		if err := r.reach(ctx, sessions, sample > 0, fold); err != nil {
			return 0, err
		}
		again, err := r.ask(ctx, different)
		if err != nil {
			return 0, err
		}
		different = r.stillDifferent(different, again)
	}
	if sample <= 0 {
		for _, p := range r.parts {
			for _, e := range p.objects {
				sessions[e.session] = true
			}
		}
	}
	return len(sessions), r.report(different, report)
}

// lag is how far a view has come that went back a little, as a claim does, and when it moved last.
type lag struct {
	at    uint64
	moved time.Time
}

// waits reports whether turns that differ were written for events that the view has not applied again yet.
func (l *lag) waits(ctx context.Context, r *reference, of []difference) (bool, error) {
	at, sum := make([]uint64, len(r.parts)), uint64(0)
	for k := range at {
		is, err := r.Applied(ctx, k)
		if err != nil {
			return false, err
		}
		at[k], sum = is.Seq, sum+is.Seq
	}
	if sum != l.at || l.moved.IsZero() {
		l.at, l.moved = sum, time.Now()
	}
	return time.Since(l.moved) < stalled && slices.ContainsFunc(of, func(d difference) bool {
		return d.partition < len(at) && d.written > at[d.partition]
	}), nil
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

// reach folds the log into the reference up to the view's positions: all of it, or only some sessions.
func (r *reference) reach(ctx context.Context, sessions map[string]bool, only bool, fold projections.Fold) error {
	for k := range r.parts {
		at, err := r.Applied(ctx, k)
		if err != nil {
			return err
		}
		if !only {
			if at.Seq < r.parts[k].at.Seq {
				continue // the view went back a little, to write again what its store may have lost
			}
			if err := fold.Reach(ctx, at); err != nil {
				return err
			}
			continue
		}
		for id := range sessions {
			if events.Partition(id, len(r.parts)) == k {
				r.forget(k, id)
				if err := fold.Session(ctx, id, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *reference) forget(k int, session string) {
	maps.DeleteFunc(r.parts[k].objects, func(_ uuid.UUID, e expected) bool { return e.session == session })
}

// list returns all objects of the served generation.
func (r *reference) list(ctx context.Context) (map[uuid.UUID]Object, error) {
	p, _, err := r.served(ctx)
	if err != nil {
		return nil, err
	}
	out, after := map[uuid.UUID]Object{}, uuid.Nil
	for {
		page, err := r.cfg.Store.Page(ctx, p.collection().Name, after, pageOfObjects)
		if err != nil {
			return nil, err
		}
		for _, o := range page {
			if after = o.ID; !isCanary(&o) {
				out[o.ID] = o
			}
		}
		if len(page) < pageOfObjects {
			return out, nil
		}
	}
}

// difference is a turn of which the two sides say different things.
type difference struct {
	id              uuid.UUID
	session         string
	ofView, ofIndex string
	// The view has written the turn for this sequence of a partition; 0: it has none.
	partition int
	written   uint64
}

func (r *reference) differences(found map[uuid.UUID]Object, sessions map[string]bool, only bool) (out []difference) {
	for id, o := range found {
		if only && !sessions[o.Session] {
			continue
		}
		if want, got := r.want(id), o.digest(); want.digest != got {
			out = append(out, difference{id, o.Session, got, want.digest, o.Partition, o.Seq})
		}
	}
	for _, p := range r.parts {
		for id, e := range p.objects {
			if _, there := found[id]; !there {
				out = append(out, difference{id: id, session: e.session, ofIndex: e.digest})
			}
		}
	}
	return out
}

func (r *reference) want(id uuid.UUID) expected {
	for _, p := range r.parts {
		if e, ok := p.objects[id]; ok {
			return e
		}
	}
	return expected{}
}

// ask reads the turns of differences again.
func (r *reference) ask(ctx context.Context, of []difference) (map[uuid.UUID]Object, error) {
	p, _, err := r.served(ctx)
	if err != nil {
		return nil, err
	}
	var ids []uuid.UUID
	for _, d := range of {
		ids = append(ids, d.id)
	}
	found, err := r.cfg.Store.ByID(ctx, p.collection().Name, ids, WithoutVectors)
	out := map[uuid.UUID]Object{}
	for _, o := range found {
		out[o.ID] = o
	}
	return out, err
}

func (r *reference) stillDifferent(of []difference, now map[uuid.UUID]Object) (out []difference) {
	for _, d := range of {
		d.ofView, d.ofIndex, d.written = "", r.want(d.id).digest, 0
		if o, there := now[d.id]; there {
			d.ofView, d.partition, d.written = o.digest(), o.Partition, o.Seq
		}
		if d.ofView != d.ofIndex {
			out = append(out, d)
		}
	}
	return out
}

// report reports one difference a session.
func (r *reference) report(of []difference, report func(projections.Difference) error) error {
	slices.SortFunc(of, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.session, b.session), slices.Compare(a.id[:], b.id[:]))
	})
	for _, d := range of {
		err := report(projections.Difference{
			SessionID: d.session, What: "turn " + d.id.String(), View: d.ofView, Log: d.ofIndex,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
