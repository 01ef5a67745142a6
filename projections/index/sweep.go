package index

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

const (
	// sweepEvery is the pause between two sweeps.
	sweepEvery = 15 * time.Second
	// sweptAtOnce bounds the objects that are put right at once, while no batch is applied.
	sweptAtOnce = 200
)

// Run sweeps from time to time until ctx ends; then it returns nil.
func (v *View) Run(ctx context.Context) error {
	for pause.For(ctx, sweepEvery) {
		if err := v.Sweep(ctx); err != nil && ctx.Err() == nil {
			v.cfg.Logger.Warn("the index is swept again later", "err", err)
		}
	}
	return nil
}

// Sweep puts right what the store's lack of transactions leaves behind, in the partitions that this process feeds: late
// writes of runners that were taken over, turns that no search finds, and turns without vectors. It also drops
// collections that are older than the served one, such as one that a late write has made anew.
func (v *View) Sweep(ctx context.Context) error {
	err := v.sweepAll(ctx)
	result := "done"
	if err != nil {
		result = "failed"
	}
	v.metrics.sweeps.WithLabelValues(result).Inc()
	return err
}

func (v *View) sweepAll(ctx context.Context) error {
	p, _, err := v.served(ctx)
	if err != nil {
		return err
	}
	if err := v.dropOlder(ctx, p); err != nil {
		return err
	}
	if err := v.compareLengths(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	own := maps.Clone(v.claims)
	v.mu.Unlock()
	// A claim of a former collection is over, though nobody may have said so: that collection may have been lost.
	maps.DeleteFunc(own, func(_ int, c *claim) bool { return c.of.collection() != p.collection() })
	for _, k := range slices.Sorted(maps.Keys(own)) {
		// Another process that has taken a partition over sweeps it.
		if err := v.sweep(ctx, own[k]); err != nil && !errors.Is(err, projections.ErrFenced) {
			return failed(err, "sweep partition %d", k)
		}
	}
	return nil
}

// dropOlder drops all collections but the served one, those that a rebuild may be filling, and those of other logs.
func (v *View) dropOlder(ctx context.Context, p pointer) error {
	// A store that lacks the served collection was emptied, or another store has it: nothing is dropped then.
	if there, err := v.holds(ctx, p); err != nil || !there {
		return err
	}
	all, err := v.cfg.Store.List(ctx)
	if err == nil {
		all, err = v.ofOwn(ctx, all)
	}
	if err != nil {
		return err
	}
	for _, c := range all {
		if c != p.collection() && !p.precedes(c) {
			v.cfg.Logger.Warn("a collection that is no longer served is dropped", "collection", c.Name)
			if err := v.cfg.Store.Drop(ctx, c.Name); err != nil {
				return err
			}
			v.metrics.swept.WithLabelValues("collection").Inc()
		}
	}
	return v.cfg.Store.Serve(ctx, p.collection().Name)
}

func (v *View) sweep(ctx context.Context, c *claim) error {
	name := c.of.collection().Name
	late := func(context.Context) (out []Object, err error) {
		for _, f := range c.at.Floors {
			if len(out) == 0 && err == nil {
				out, err = v.cfg.Store.Late(ctx, name, Late{c.partition, f}, sweptAtOnce)
			}
		}
		return out, err
	}
	if err := v.settleAll(ctx, c, "late write", late); err != nil {
		return err
	}
	if c.of.Model != v.cfg.Embedder.Model() {
		return nil
	}
	if err := v.settleAll(ctx, c, "unseen object", v.unseen(c)); err != nil {
		return err
	}
	return v.fillIn(ctx, c)
}

// fillIn makes the vectors that objects lack, some at a time. Batches are applied while the embedder is asked.
func (v *View) fillIn(ctx context.Context, c *claim) error {
	seen := map[uuid.UUID]bool{}
	for {
		lacking, err := v.lacking(ctx, c, seen)
		if err != nil || len(lacking.bySession) == 0 {
			return err
		}
		vectors := v.embed(ctx, lacking.written, sweepPatience)
		if vectors == nil && len(lacking.deleted) == 0 {
			return nil
		}
		if err := v.settleLacking(ctx, c, lacking, vectors); err != nil {
			return err
		}
		v.metrics.swept.WithLabelValues("missing vector").Add(float64(len(lacking.written) + len(lacking.deleted)))
	}
}

// unfilled are objects that lack vectors, by their sessions, and what the log said of them at a sequence.
type unfilled struct {
	bySession map[string][]uuid.UUID
	at        uint64
	written   []Object
	deleted   []uuid.UUID
}

// lacking returns objects that lack vectors and were not seen before.
func (v *View) lacking(ctx context.Context, c *claim, seen map[uuid.UUID]bool) (out unfilled, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.mayEmbed() || !v.mayEmbedFor(c) {
		return out, nil
	}
	if err := c.holds(ctx); err != nil {
		return out, err
	}
	found, err := v.cfg.Store.Bare(ctx, c.of.collection().Name, c.partition, sweptAtOnce)
	if err != nil {
		return out, err
	}
	out.bySession, out.at = unseenBySession(found, seen), c.at.Seq
	if out.written, out.deleted, err = v.now(ctx, c, out.bySession); err == nil {
		_, err = v.takeOver(ctx, c, out.written) // one half may have its vector
	}
	return out, err
}

// settleLacking writes what lacked vectors with those that were made meanwhile, as the log has it by now.
func (v *View) settleLacking(ctx context.Context, c *claim, lacking unfilled, vectors made) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(ctx); err != nil {
		return err
	}
	written, deleted := lacking.written, lacking.deleted
	if c.at.Seq != lacking.at {
		if written, deleted, err = v.now(ctx, c, lacking.bySession); err != nil {
			return err
		}
	}
	return v.settleAs(ctx, c, written, deleted, func(context.Context, []Object) made { return vectors })
}

// settleAll settles the objects that find returns, until it returns none or only what it has returned before.
func (v *View) settleAll(
	ctx context.Context, c *claim, what string, find func(context.Context) ([]Object, error),
) error {
	seen := map[uuid.UUID]bool{}
	for {
		fresh, err := v.settleSome(ctx, c, find, seen)
		if err != nil || fresh == 0 {
			return err
		}
		v.metrics.swept.WithLabelValues(what).Add(float64(fresh))
	}
}

func (v *View) settleSome(
	ctx context.Context, c *claim, find func(context.Context) ([]Object, error), seen map[uuid.UUID]bool,
) (fresh int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(ctx); err != nil {
		return 0, err
	}
	found, err := find(ctx)
	if err != nil {
		return 0, err
	}
	bySession := unseenBySession(found, seen)
	for _, ids := range bySession {
		fresh += len(ids)
	}
	written, deleted, err := v.now(ctx, c, bySession)
	if err != nil {
		return 0, err
	}
	return fresh, v.settleAs(ctx, c, written, deleted, v.embedder(batchPatience))
}

// unseenBySession returns those of the objects that were not seen before, and notes that they are seen.
func unseenBySession(found []Object, seen map[uuid.UUID]bool) map[string][]uuid.UUID {
	out := map[string][]uuid.UUID{}
	for i := range found {
		if o := &found[i]; !seen[o.ID] && !isCanary(o) {
			seen[o.ID] = true
			out[o.Session] = append(out[o.Session], o.ID)
		}
	}
	return out
}

// now returns what the log says of objects at the claim's checkpoint. The caller has the claim's lock.
func (v *View) now(
	ctx context.Context, c *claim, bySession map[string][]uuid.UUID,
) (written []Object, deleted []uuid.UUID, err error) {
	for _, session := range slices.Sorted(maps.Keys(bySession)) {
		out, err := v.replayed(ctx, c.partition, session, c.at.Seq)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range bySession[session] {
			if o := out.objects[id]; o != nil {
				o.Seq = c.at.Seq
				written = append(written, *o)
			} else {
				deleted = append(deleted, id)
			}
		}
	}
	return written, deleted, nil
}

// settleAs makes objects what the log says of them. The caller has the claim's lock.
func (v *View) settleAs(
	ctx context.Context, c *claim, written []Object, deleted []uuid.UUID, vectors source,
) error {
	err := v.write(ctx, c, written, deleted, mayStand, vectors)
	if projections.IsPermanent(err) { // dead letters tell of these turns
		err = nil
	}
	if err == nil && len(written) > 0 {
		err = v.putCanary(ctx, c, c.at.Seq) // it takes their vectors to the files
	}
	return err
}

// replayed plans all events of a session up to a sequence of its partition. The session's last state alone would not
// tell which of its turns the index has: a reset hides where the turns begin that a link brought.
func (v *View) replayed(ctx context.Context, partition int, session string, upTo uint64) (*changes, error) {
	judge := projections.NewJudge(v.cfg.Log, v.cfg.Rules, upTo)
	var run []projections.Judged
	for e, err := range v.cfg.Log.Session(ctx, session, 0, upTo) {
		if err != nil {
			return nil, failed(err, "read a session")
		}
		j, err := judge.Judge(ctx, e)
		if err != nil {
			return nil, failed(err, "judge a session")
		}
		run = append(run, j)
	}
	return newPlanner(&v.cfg, partition).plan(ctx, run)
}
