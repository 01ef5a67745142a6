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

const (
	// sweepEvery is the least pause between two sweeps, and restFor the pause in times of what the last one took. One
	// that a deletion waits for comes sooner.
	sweepEvery = 15 * time.Second
	restFor    = 20
	soon       = time.Second
	// sweptAtOnce bounds the objects that are put right at once, while no batch is applied, and settleDeadline what
	// that takes.
	sweptAtOnce    = 200
	settleDeadline = 30 * time.Second
	// arrived is how long after a claim no request of a former runner of the partition can arrive any more: each ends
	// within half a minute.
	arrived = time.Minute
)

// Run sweeps from time to time until ctx ends; then it returns nil.
func (v *View) Run(ctx context.Context) error {
	for took := time.Duration(0); v.rest(ctx, took); {
		began := time.Now()
		if err := v.Sweep(ctx); err != nil && ctx.Err() == nil {
			v.cfg.Logger.Warn("the index is swept again later", "err", err)
		}
		took = time.Since(began)
	}
	return nil
}

// rest waits for the next sweep after one that took so long; it returns false if ctx ends first.
func (v *View) rest(ctx context.Context, took time.Duration) bool {
	var asked bool
	_, err := pause.Within(ctx, max(sweepEvery, restFor*took), func(ctx context.Context) error {
		select {
		case <-v.deleted:
			asked = true
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return err == nil && (!asked || pause.For(ctx, max(soon, took)))
}

// Sweep compares what the store holds with a fold of the log, in the partitions that this process feeds, and puts right
// what differs, whatever the reason: writes of runners that were taken over, objects that the store has lost, turns
// that no search finds, and turns without vectors. It also drops collections that are older than the served one, such
// as one that a late write has made anew.
func (v *View) Sweep(ctx context.Context) error {
	v.sweeping.Lock()
	defer v.sweeping.Unlock()
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
	return v.reconcile(ctx, p, own)
}

// pass is one comparison of the store with folds of the log, by partitions.
type pass struct {
	number uint32
	folds  map[int]*fold
	// differ are the objects that differ: their ids and sessions.
	differ map[int][]Object
}

func (p *pass) differs(partition int, id uuid.UUID, session string) {
	p.differ[partition] = append(p.differ[partition], Object{ID: id, Session: session})
}

// reconcile pages through the ids and digests of all objects, and puts right what differs from the log.
func (v *View) reconcile(ctx context.Context, of pointer, own map[int]*claim) error {
	v.passes++
	p, began, begun := pass{v.passes, map[int]*fold{}, map[int][]Object{}}, v.cfg.Now(), map[int]uint64{}
	maps.DeleteFunc(v.folds, func(k int, _ *fold) bool { return own[k] == nil })
	for k, c := range own {
		c.mu.Lock()
		begun[k] = c.at.Seq
		c.mu.Unlock()
		var err error
		if p.folds[k], err = v.foldOf(ctx, c, begun[k]); err != nil {
			return err
		}
	}
	if len(own) > 0 {
		if err := v.eachObject(ctx, of, p.meet); err != nil {
			return err
		}
	}
	p.miss()
	for _, k := range slices.Sorted(maps.Keys(own)) {
		err := v.sweep(ctx, own[k], p.differ[k])
		if err == nil {
			err = own[k].settled(ctx, begun[k], began)
		}
		// Another process that has taken a partition over sweeps it.
		if err != nil && !errors.Is(err, projections.ErrFenced) {
			return failed(err, "sweep partition %d", k)
		}
	}
	return nil
}

const pageOfObjects = 1000

// eachObject pages through the objects of a generation.
func (v *View) eachObject(ctx context.Context, of pointer, do func(*Object)) error {
	for after := uuid.Nil; ; {
		page, err := v.cfg.Store.Page(ctx, of.collection().Name, after, pageOfObjects)
		if err != nil {
			return err
		}
		for i := range page {
			if after = page[i].ID; !isProbe(&page[i]) {
				do(&page[i])
			}
		}
		if len(page) < pageOfObjects {
			return nil
		}
	}
}

// meet compares an object of the store.
func (p *pass) meet(o *Object) {
	f := p.folds[o.Partition]
	if f == nil {
		return
	}
	e, known := f.objects[o.ID]
	if !known || e.digest != o.digest() {
		p.differs(o.Partition, o.ID, o.Session)
	}
	if known {
		e.found = p.number
		f.objects[o.ID] = e
	}
}

// miss finds what the store lacks. A turn without an identity must be missed twice in a row: a retention deletes it
// before the log forgets it.
func (p *pass) miss() {
	for k, f := range p.folds {
		for id, e := range f.objects {
			if e.found == p.number {
				continue
			}
			if !e.anonymous || e.missed == p.number-1 {
				p.differs(k, id, e.session)
			}
			e.missed = p.number
			f.objects[id] = e
		}
	}
}

// settled notes that nothing comes back that was deleted before a pass began.
func (c *claim) settled(ctx context.Context, seq uint64, began time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.Deleted <= c.at.Settled || seq <= c.at.Settled || !c.alone && began.Sub(c.since) < arrived {
		return nil
	}
	at := c.at
	at.Settled = seq
	return c.commit(ctx, at)
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

// Why an object is written again.
const (
	difference = "difference"
	unseen     = "unseen object"
	bare       = "missing vector"
)

// sweep puts right a partition: what differs from the log, what no search finds, and what lacks vectors.
func (v *View) sweep(ctx context.Context, c *claim, differ []Object) error {
	slices.SortFunc(differ, func(a, b Object) int { return cmp.Compare(a.Session, b.Session) })
	err := v.settle(ctx, c, difference, func(context.Context) (some []Object, err error) {
		n := min(len(differ), sweptAtOnce)
		some, differ = differ[:n], differ[n:]
		return some, nil
	})
	if err != nil || c.of.Model != v.cfg.Embedder.Model() {
		return err
	}
	if err := v.settle(ctx, c, unseen, v.findUnseen(c)); err != nil {
		return err
	}
	return v.settle(ctx, c, bare, func(ctx context.Context) ([]Object, error) {
		if !v.mayEmbed() || !v.mayEmbedFor(c) {
			return nil, nil
		}
		return v.cfg.Store.Bare(ctx, c.of.collection().Name, c.partition, sweptAtOnce)
	})
}

// wrong are objects that are to be as the log says, by their sessions, and what the log said of them at a sequence.
type wrong struct {
	bySession map[string][]uuid.UUID
	at        uint64
	written   []Object
	deleted   []uuid.UUID
}

// settle has objects be as the log says, those that find returns, until it returns none or only what it has returned
// before. Batches are applied while the embedder is asked for what lacks a vector.
func (v *View) settle(
	ctx context.Context, c *claim, why string, find func(context.Context) ([]Object, error),
) error {
	for seen := map[uuid.UUID]bool{}; ; {
		some, err := v.wrong(ctx, c, why, find, seen)
		if err != nil || len(some.bySession) == 0 {
			return err
		}
		vectors := made{}
		if c.of.Model == v.cfg.Embedder.Model() {
			vectors = v.embed(ctx, some.written, sweepPatience)
		}
		if why == bare && vectors == nil && len(some.deleted) == 0 {
			return nil
		}
		if err := v.putRight(ctx, c, some, vectors); err != nil {
			return err
		}
		v.metrics.swept.WithLabelValues(why).Add(float64(len(some.written) + len(some.deleted)))
	}
}

// wrong returns what the log says of objects that find returns and that were not seen before.
func (v *View) wrong(
	ctx context.Context, c *claim, why string, find func(context.Context) ([]Object, error), seen map[uuid.UUID]bool,
) (out wrong, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(ctx); err != nil {
		return out, err
	}
	found, err := find(ctx)
	if err != nil {
		return out, err
	}
	out.bySession, out.at = map[string][]uuid.UUID{}, c.at.Seq
	for i := range found {
		if o := &found[i]; !seen[o.ID] && !isProbe(o) {
			seen[o.ID] = true
			out.bySession[o.Session] = append(out.bySession[o.Session], o.ID)
		}
	}
	if out.written, out.deleted, err = v.now(ctx, c, out.bySession); err != nil {
		return out, err
	}
	for _, id := range out.deleted {
		delete(v.folds[c.partition].objects, id) // the log may have forgotten it without an event
	}
	stand, err := v.takeOver(ctx, c, out.written)
	if why == difference {
		out.written = slices.DeleteFunc(out.written, func(o Object) bool {
			is, there := stand[o.ID]
			return there && is == o.digest() || !there && c.refused[o.ID] // a dead letter tells of it
		})
	}
	return out, err
}

// putRight writes what was wrong, as the log has it by now, with the vectors that were made meanwhile.
func (v *View) putRight(ctx context.Context, c *claim, some wrong, vectors made) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	if err := c.holds(ctx); err != nil {
		return err
	}
	if c.at.Seq != some.at {
		if some.written, some.deleted, err = v.now(ctx, c, some.bySession); err != nil {
			return err
		}
	}
	err = v.write(ctx, c, some.written, some.deleted, mayStand, func(context.Context, []Object) made { return vectors })
	if projections.IsPermanent(err) { // dead letters tell of these turns
		err = nil
	}
	if err == nil && len(some.written) > 0 {
		err = v.flush(ctx, c)
	}
	return err
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
				written = append(written, *o)
			} else {
				deleted = append(deleted, id)
			}
		}
	}
	return written, deleted, nil
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
