package index

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/feed"
)

// fold is what the index has to hold of a partition up to a sequence: about 100 bytes a turn. Not safe for concurrent
// use.
type fold struct {
	of      Collection
	plans   *planner
	at      events.Position
	objects map[uuid.UUID]expected
}

// expected is what the index has to hold of a turn, and the last pass that has found it so, or has missed it.
type expected struct {
	session       string
	digest        digest
	anonymous     bool
	found, missed uint32
}

// digest is that of what is compared of an object; it is zero where there is none.
type digest [8]byte

// String implements fmt.Stringer; "" where there is no object.
func (d digest) String() string {
	if d == (digest{}) {
		return ""
	}
	return fmt.Sprintf("%x", d[:])
}

// digest of what is compared: the ids, the version, the identity, the start, and what was embedded.
func (o *Object) digest() digest {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d\x00%s\x00%s\x00%s", o.ID, o.Session,
		o.Identity, o.StartSeq, o.Version, o.CreatedAt.UTC().Format(time.RFC3339Nano), o.Question.Digest,
		o.Answer.Digest))
	return digest(sum[:8])
}

func newFold(cfg *Config, of Collection, partition int) *fold {
	return &fold{
		of: of, plans: newPlanner(cfg, partition), at: events.Position{Partition: partition},
		objects: map[uuid.UUID]expected{},
	}
}

// take folds the next events of the partition.
func (f *fold) take(ctx context.Context, run []projections.Judged) error {
	out, err := f.plans.plan(ctx, run)
	if err != nil {
		return err
	}
	for id, o := range out.objects {
		if o == nil {
			delete(f.objects, id)
		} else {
			f.objects[id] = expected{session: o.Session, digest: o.digest(), anonymous: o.Identity == ""}
		}
	}
	return nil
}

// forget drops what the fold has of a session.
func (f *fold) forget(session string) {
	maps.DeleteFunc(f.objects, func(_ uuid.UUID, e expected) bool { return e.session == session })
}

const (
	// foldBytes bounds what the judges of folds hold of sessions.
	foldBytes = 16 << 20
	// foldedAtOnce bounds the events that a fold takes at once, and mostFoldRest its rest after them, in which the
	// processors are for others.
	foldedAtOnce = 1000
	mostFoldRest = 250 * time.Millisecond
)

// reach folds the log up to a sequence.
func (v *View) reach(ctx context.Context, f *fold, seq uint64) error {
	if f.at.Seq >= seq {
		return nil
	}
	in := feed.Judged(v.reader.Judged(f.at.Partition, f.at.Seq, foldedAtOnce), v.cfg.Log, f.at, feed.Options{})
	defer in.Close()
	for {
		began := time.Now()
		run, err := in.Next(ctx, seq)
		if err == nil {
			err = f.take(ctx, run)
		}
		switch {
		case err != nil:
			return failed(err, "fold the log")
		case len(run) == 0:
			f.at.Seq = seq
			return nil
		}
		f.at = run[len(run)-1].Position
		if f.at.Seq < seq && !pause.For(ctx, min(time.Since(began), mostFoldRest)) {
			return ctx.Err()
		}
	}
}

// embedderOf names the model of a generation in place of that of the settings.
type embedderOf struct {
	Embedder
	model string
}

// Model implements Embedder.
func (e embedderOf) Model() string { return e.model }

// foldOf returns the fold of a claim's partition up to a sequence. It is that of the last sweep, as far as that goes.
func (v *View) foldOf(ctx context.Context, c *claim, seq uint64) (*fold, error) {
	f, of := v.folds[c.partition], c.of.collection()
	if f == nil || f.of != of || f.at.Seq > seq {
		cfg := v.cfg
		cfg.Embedder = embedderOf{cfg.Embedder, c.of.Model}
		f = newFold(&cfg, of, c.partition)
		v.folds[c.partition] = f
	}
	err := v.reach(ctx, f, seq)
	if err != nil {
		delete(v.folds, c.partition) // it may have taken a part of a batch
	}
	return f, err
}
