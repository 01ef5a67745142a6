package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// View is a recent-turns view in memory. Safe for concurrent use; Apply blocks no
// Load for longer than one event takes.
type View struct {
	limits recent.Limits
	rules  conversation.Rules
	now    func() time.Time
	seed   maphash.Seed
	parts  [events.Buckets]atomic.Pointer[partition]

	mu   sync.Mutex
	dead []projections.DeadLetter
}

var _ recent.View = (*View)(nil)

var errPartition = errors.New("no such partition")

// New makes an empty view. now decides when a session is gone; time.Now by default.
func New(limits recent.Limits, rules conversation.Rules, now func() time.Time) *View {
	if now == nil {
		now = time.Now
	}
	rules.Slim = false
	return &View{limits: limits.WithDefaults(), rules: rules, now: now, seed: maphash.MakeSeed()}
}

// Name of the projection.
func (v *View) Name() string { return "recent" }

// Claim takes a partition over; its checkpoint is that of this process, at first
// sequence 0.
func (v *View) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	p, err := v.partition(ctx, partition)
	if err != nil {
		return projections.Checkpoint{}, fmt.Errorf("claim partition %d in memory: %w", partition, err)
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	p.at.Epoch++
	return p.at, nil
}

// Apply applies a batch. It never fails halfway.
func (v *View) Apply(ctx context.Context, b projections.Batch) error {
	p, err := v.partition(ctx, b.From.Partition)
	if err == nil {
		err = p.commit(b, func() { v.applyAll(p, b) })
	}
	if err != nil {
		return fmt.Errorf("apply to memory after %s: %w", b.From.Position(), err)
	}
	return nil
}

func (v *View) applyAll(p *partition, b projections.Batch) {
	now := v.now().UnixMilli()
	for i := range b.Events {
		if e := &b.Events[i]; e.Position.Seq > b.From.Seq && e.SessionID != "" {
			v.apply(p.shard(v.hash(e.SessionID)), e, now)
		}
	}
	p.sweep(now)
}

// Load is described at recent.View. It takes microseconds and does no I/O.
func (v *View) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	p, err := v.partition(ctx, partition)
	if err != nil {
		return recent.Snapshot{}, fmt.Errorf("load a session from memory: %w", err)
	}
	// The position is read before the state: what the state lacks is then after it.
	snap := recent.Snapshot{Applied: events.Position{Partition: partition, Seq: p.applied.Load()}}
	snap.State = p.shard(v.hash(sessionID)).load(sessionID, shown, v.now().UnixMilli())
	if snap.State != nil {
		snap.Applied.Seq = max(snap.Applied.Seq, snap.State.Applied)
	}
	return snap, nil
}

// Applied is the position up to which a partition has been applied.
func (v *View) Applied(partition int) events.Position {
	at := events.Position{Partition: partition}
	if p, err := v.part(partition); err == nil {
		at.Seq = p.applied.Load()
	}
	return at
}

// Wait blocks until the view has applied a position, or ctx ends: then its error.
func (v *View) Wait(ctx context.Context, at events.Position) error {
	p, err := v.partition(ctx, at.Partition)
	if err != nil {
		return fmt.Errorf("wait for %s in memory: %w", at, err)
	}
	if err := p.wait(ctx, at.Seq); err != nil {
		return fmt.Errorf("wait for %s in memory: %w", at, err)
	}
	return nil
}

func (v *View) hash(sessionID string) uint64 { return maphash.String(v.seed, sessionID) }

func (v *View) partition(ctx context.Context, k int) (*partition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return v.part(k)
}

func (v *View) part(k int) (*partition, error) {
	if k < 0 || k >= len(v.parts) {
		return nil, errPartition
	}
	p := v.parts[k].Load()
	if p == nil {
		v.parts[k].CompareAndSwap(nil, newPartition(k))
		p = v.parts[k].Load()
	}
	return p, nil
}
