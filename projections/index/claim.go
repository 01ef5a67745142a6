package index

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// claimed is the note of a partition's claim. The claim's revision guards the checkpoint: who claims fences all others.
type claimed struct {
	Epoch uint64 `json:"epoch"`
	// Closed: a swap has fenced the runners, and may be about to put another generation in this one's place.
	Closed bool `json:"closed,omitempty"`
}

// claim is a partition of a generation that this process writes. Its lock is held while it writes.
type claim struct {
	mu        sync.Mutex
	of        pointer
	partition int
	epoch     uint64
	notes     desk.Notes
	revision  uint64
	at        place
	// since is when the partition was claimed. alone: nobody had claimed it before. fills: a rebuild fills it, beside
	// which nobody writes.
	since        time.Time
	alone, fills bool
	// doubtful is the sequence up to which objects may have been written before.
	doubtful uint64
	plans    *planner
	// reuse names the collection that vectors are taken over from.
	reuse string
	// dimensions that its vectors must have; 0: those that the collection has.
	dimensions int
	// embedAgain is when the embedder is asked again after it made vectors that the collection can't take.
	embedAgain time.Time
	// refused are the objects that the store has refused for good.
	refused map[uuid.UUID]bool
}

// Claim implements projections.Sink, for the served generation.
func (v *View) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	p, notes, err := v.ensure(ctx, whereItIs)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	c, err := v.claim(ctx, p, notes, partition, admitReopening)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	v.mu.Lock()
	v.claims[partition] = c
	v.mu.Unlock()
	return c.at.checkpoint(p, partition, c.epoch), nil
}

// largestBatch bounds the events of a batch that a former runner may have written without a checkpoint.
const largestBatch = 2000

// reopening says whether a claim may open a partition that a swap has closed.
type reopening bool

const admitReopening reopening = true

func (v *View) claim(
	ctx context.Context, p pointer, notes desk.Notes, partition int, may reopening,
) (*claim, error) {
	c := &claim{
		of: p, partition: partition, notes: notes, plans: newPlanner(&v.cfg, partition), reuse: p.collection().Name,
		since: v.cfg.Now(),
	}
	var now claimed
	revision, err := notes.Read(ctx, p.key("claim", partition), &now)
	if err == nil && now.Closed && may == admitReopening {
		err = touch(ctx, notes, p)
	}
	if err == nil {
		c.epoch, c.alone = now.Epoch+1, now.Epoch == 0
		c.revision, err = notes.Write(ctx, p.key("claim", partition), claimed{Epoch: c.epoch}, revision)
	}
	if err != nil {
		return nil, failed(fenced(err), "claim partition %d", partition)
	}
	if _, err := notes.Read(ctx, p.key("at", partition), &c.at); err != nil {
		return nil, err
	}
	c.doubtful = c.at.Seq + largestBatch
	return c, c.commit(ctx, c.at)
}

// touch writes the pointer again, so that a swap that closed the generation begins anew. It fails if another generation
// is served by now.
func touch(ctx context.Context, notes desk.Notes, p pointer) error {
	var now pointer
	revision, err := notes.Read(ctx, pointerKey, &now)
	if err == nil && now.Generation != p.Generation {
		err = projections.ErrFenced
	}
	if err == nil {
		err = notes.Commit(ctx, pointerKey, now, pointerKey, revision)
	}
	return err
}

// commit writes the checkpoint, unless another runner has claimed the partition.
func (c *claim) commit(ctx context.Context, at place) error {
	err := c.notes.Commit(ctx, c.of.key("at", c.partition), at, c.of.key("claim", c.partition), c.revision)
	if err == nil {
		c.at = at
	}
	return fenced(err)
}

// holds fails if another runner has claimed the partition.
func (c *claim) holds(ctx context.Context) error {
	var now claimed
	revision, err := c.notes.Read(ctx, c.of.key("claim", c.partition), &now)
	if err == nil && revision != c.revision {
		err = projections.ErrFenced
	}
	return err
}

// fenced returns ErrFenced for a conflict of notes.
func fenced(err error) error {
	if errors.Is(err, jetlog.ErrConflict) {
		return projections.ErrFenced
	}
	return err
}

// probeID is the id of an object that is no turn. A store that takes it takes objects.
var probeID = uuid.NewSHA1(uuid.NameSpaceOID, []byte("turnledger.index.probe"))

// isProbe reports whether an object is the probe.
func isProbe(o *Object) bool { return o.Session == "" }

// flush writes the probe, behind which the store keeps what was written before, and its vectors.
func (v *View) flush(ctx context.Context, c *claim) error {
	return v.cfg.Store.Put(ctx, c.of.collection().Name, []Object{{ID: probeID, Partition: c.partition}})
}
