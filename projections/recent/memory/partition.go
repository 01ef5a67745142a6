package memory

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// partition is what the view holds of one partition of the log. Each partition has its own shards, since only the
// events of one partition are ordered by time.
type partition struct {
	applied atomic.Uint64 // the sequence of at
	shards  [shards]shard

	applying sync.Mutex // held while a caller claims, applies or parks
	at       projections.Checkpoint
	swept    int

	mu    sync.Mutex
	moved chan struct{} // closed when applied has moved
}

const shards = 64

func newPartition(k int, opened *opened) *partition {
	p := &partition{at: projections.Checkpoint{Partition: k}, moved: make(chan struct{})}
	for i := range p.shards {
		p.shards[i].begin(opened)
	}
	return p
}

func (p *partition) shard(hash uint64) *shard { return &p.shards[hash%shards] }

// commit runs do and moves the checkpoint, if the batch begins at the checkpoint.
func (p *partition) commit(b projections.Batch, do func()) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	if p.at.Epoch == 0 || p.at.Epoch != b.From.Epoch || p.at.Seq != 0 && p.at.Seq != b.From.Seq {
		return projections.ErrFenced
	}
	do()
	epoch := p.at.Epoch
	p.at = b.To
	p.at.Partition, p.at.Epoch = b.From.Partition, epoch
	p.applied.Store(p.at.Seq)
	p.move()
	return nil
}

// snapshot returns the result of load, and a sequence up to which the result holds all events. It reads the sequence
// before it calls load, so events that are applied during load are behind that sequence.
func (p *partition) snapshot(load func() *session.State) (uint64, *session.State) {
	seq := p.applied.Load()
	state := load()
	if state != nil {
		seq = max(seq, state.Applied)
	}
	return seq, state
}

// move wakes all callers of wait.
func (p *partition) move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.moved)
	p.moved = make(chan struct{})
}

// wait blocks until the checkpoint moves, and reports whether it had reached seq already. When a partition is no longer
// served, its checkpoint moves once more, to wake the callers.
func (p *partition) wait(ctx context.Context, seq uint64) (bool, error) {
	p.mu.Lock()
	moved := p.moved
	p.mu.Unlock()
	if p.applied.Load() >= seq {
		return true, nil
	}
	select {
	case <-moved:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// sweep clears one more shard with each batch, for sessions in shards without new events.
func (p *partition) sweep(now int64) {
	p.swept = (p.swept + 1) % shards
	s := &p.shards[p.swept]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now, sweepBatch)
}

// sweepBatch and sweepEvent bound the sessions that one batch, and one event, clear.
const (
	sweepBatch = 256
	sweepEvent = 2
)
