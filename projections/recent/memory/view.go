package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// View is a recent-turns view in memory. Safe for concurrent use; Apply blocks no Load for longer than it takes to
// apply one event.
type View struct {
	served atomic.Pointer[generation]
	// next is the generation that is being filled, or nil.
	next atomic.Pointer[generation]
	last atomic.Uint64 // number of the newest generation
}

// generation is the content of a view. A rebuild fills a second one beside the served one.
type generation struct {
	limits recent.Limits
	rules  session.Rules
	now    func() time.Time
	seed   maphash.Seed
	number uint64
	store  string
	view   *View // the view to swap into; nil for the first generation
	opened opened
	parts  [events.Buckets]atomic.Pointer[partition]
}

var (
	_ projections.View = (*View)(nil)
	_ recent.Reader    = (*View)(nil)
)

var errPartition = errors.New("no such partition")

// New makes an empty view. now is the clock by which sessions expire; time.Now by default.
func New(limits recent.Limits, rules session.Rules, now func() time.Time) *View {
	return packing(limits, rules, now, openBytes)
}

// packing makes a view that leaves so many bytes of sessions unpacked.
func packing(limits recent.Limits, rules session.Rules, now func() time.Time, open int64) *View {
	if now == nil {
		now = time.Now
	}
	rules.Slim = false
	v := &View{}
	v.last.Store(1)
	v.served.Store(&generation{
		limits: limits.WithDefaults(), rules: rules, now: now, seed: maphash.MakeSeed(), number: 1,
		store: uuid.NewString(), opened: opened{most: open, packer: recent.NewPacker()},
	})
	return v
}

// Name of the projection.
func (v *View) Name() string { return recent.Name }

// Claim claims a partition. Its checkpoint lives in this process, and begins at sequence 0.
func (v *View) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	return v.served.Load().Claim(ctx, partition)
}

// Claim claims a partition of the generation.
func (v *generation) Claim(ctx context.Context, partition int) (_ projections.Checkpoint, err error) {
	defer projections.Wrap(&err, "claim partition %d in memory", partition)
	p, err := v.partition(ctx, partition)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	p.at.Epoch++
	return v.named(p.at), nil
}

// named adds the store and the generation to a checkpoint.
func (v *generation) named(at projections.Checkpoint) projections.Checkpoint {
	at.Store, at.Generation = v.store, v.number
	return at
}

// Apply applies a batch. It never stops halfway.
func (v *View) Apply(ctx context.Context, b projections.Batch) error {
	return v.served.Load().Apply(ctx, b)
}

// Apply applies a batch to the generation.
func (v *generation) Apply(ctx context.Context, b projections.Batch) (err error) {
	defer projections.Wrap(&err, "apply to memory after %s", b.From.Position())
	p, err := v.partition(ctx, b.From.Partition)
	if err == nil {
		err = p.commit(b, func() { v.applyAll(p, b) })
	}
	return err
}

func (v *generation) applyAll(p *partition, b projections.Batch) {
	now := v.now().UnixMilli()
	for all := b.Events; len(all) > 0; {
		n := 1
		if len(all) > 1 && all[0].Continues {
			n = 2
		}
		if e := &all[0]; e.SessionID != "" {
			v.applyTogether(p.shard(v.hash(e.SessionID)), all[:n], b.From.Seq, now)
		}
		all = all[n:]
	}
	for i := range b.Parked {
		e := &b.Parked[i]
		p.shard(v.hash(e.SessionID)).giveUp(e.SessionID, e.Position.Seq)
	}
	p.sweep(now)
}

// Load is described at recent.Loader. It takes microseconds and does no I/O.
func (v *View) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	g := v.served.Load()
	p, err := g.partition(ctx, partition)
	if err != nil {
		return recent.Snapshot{}, fmt.Errorf("load a session from memory: %w", err)
	}
	seq, state := p.snapshot(func() *session.State {
		return p.shard(g.hash(sessionID)).load(sessionID, g.rules, shown, g.now().UnixMilli())
	})
	return recent.Snapshot{Applied: events.Position{Partition: partition, Seq: seq}, State: state}, nil
}

// Applied implements projections.Projection.
func (v *View) Applied(ctx context.Context, partition int) (events.Position, error) {
	at := events.Position{Partition: partition}
	p, err := v.served.Load().partition(ctx, partition)
	if err == nil {
		at.Seq = p.applied.Load()
	}
	return at, err
}

// Wait blocks until the view has applied a position. If ctx ends first, it returns ctx's error.
func (v *View) Wait(ctx context.Context, at events.Position) (err error) {
	defer projections.Wrap(&err, "wait for %s in memory", at)
	for there := false; !there && err == nil; {
		var p *partition
		if p, err = v.served.Load().partition(ctx, at.Partition); err == nil {
			there, err = p.wait(ctx, at.Seq)
		}
	}
	return err
}

func (v *generation) hash(sessionID string) uint64 { return maphash.String(v.seed, sessionID) }

func (v *generation) partition(ctx context.Context, k int) (*partition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return v.part(k)
}

func (v *generation) part(k int) (*partition, error) {
	if k < 0 || k >= len(v.parts) {
		return nil, errPartition
	}
	p := v.parts[k].Load()
	if p == nil {
		v.parts[k].CompareAndSwap(nil, newPartition(k, &v.opened))
		p = v.parts[k].Load()
	}
	return p, nil
}
