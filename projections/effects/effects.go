// Package effects lets a projection act on the outside world instead of keeping rows:
// it has no store of its own to hold its checkpoint, so a bucket in NATS does; its dead
// letters and its runners are in the desk like those of views. What it
// does must be harmless when it is done again, since the checkpoint follows after.
//
// An effect can't be rebuilt, and a rebuild of other views never runs it.
package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// Handler does something for events, in order. An error that trying again can't mend is
// wrapped by projections.Permanent.
type Handler interface {
	Name() string
	Handle(ctx context.Context, batch []projections.Judged) error
}

// Config of an Effect.
type Config struct {
	// Replicas of the bucket; 1 by default.
	Replicas int
	// Log and Rules are for the retry of dead letters.
	Log   projections.LogReader
	Rules conversation.Rules
}

// Effect is a projection of a Handler. Safe for concurrent use.
type Effect struct {
	Handler
	js  jetstream.JetStream
	cfg Config

	mu     sync.Mutex
	bucket jetstream.KeyValue
	// revisions of the checkpoints that this process has claimed.
	revisions map[int]uint64
}

var _ projections.Projection = (*Effect)(nil)

// New makes an effect; it does no I/O.
func New(js jetstream.JetStream, h Handler, cfg Config) *Effect {
	return &Effect{Handler: h, js: js, cfg: cfg, revisions: map[int]uint64{}}
}

// open gives the bucket, which is made where there is none.
func (e *Effect) open(ctx context.Context) (jetstream.KeyValue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bucket != nil {
		return e.bucket, nil
	}
	name := "turnledger-" + e.Name()
	bucket, err := e.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = e.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "how far the effect " + e.Name() + " is", Replicas: max(e.cfg.Replicas, 1), History: 1,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open the bucket %s: %w", name, err)
	}
	e.bucket = bucket
	return bucket, nil
}

func checkpointKey(partition int) string { return "checkpoint." + strconv.Itoa(partition) }

// stored gives the checkpoint of a partition and its revision; both are zero where there
// is none.
func (e *Effect) stored(ctx context.Context, partition int) (cp projections.Checkpoint, revision uint64, err error) {
	bucket, err := e.open(ctx)
	if err != nil {
		return cp, 0, err
	}
	cp.Partition = partition
	entry, err := bucket.Get(ctx, checkpointKey(partition))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return cp, 0, nil
	}
	if err != nil {
		return cp, 0, fmt.Errorf("read a checkpoint: %w", err)
	}
	if err := json.Unmarshal(entry.Value(), &cp); err != nil {
		return cp, 0, fmt.Errorf("read a checkpoint: %w", err)
	}
	return cp, entry.Revision(), nil
}

// Claim implements projections.Projection.
func (e *Effect) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	cp, revision, err := e.stored(ctx, partition)
	if err != nil {
		return cp, err
	}
	cp.Epoch++
	return cp, e.store(ctx, cp, revision)
}

// store moves a checkpoint on, where it still has a revision.
func (e *Effect) store(ctx context.Context, cp projections.Checkpoint, revision uint64) error {
	raw, err := json.Marshal(cp)
	if err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	bucket, err := e.open(ctx)
	if err != nil {
		return err
	}
	revision, err = bucket.Update(ctx, checkpointKey(cp.Partition), raw, revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return projections.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revisions[cp.Partition] = revision
	return nil
}

// commit moves the checkpoint of a batch on, which nobody else must have claimed.
func (e *Effect) commit(ctx context.Context, b projections.Batch) error {
	e.mu.Lock()
	revision := e.revisions[b.To.Partition]
	e.mu.Unlock()
	return e.store(ctx, b.To, revision)
}

// Apply implements projections.Projection: what the batch asks for is done, and then
// noted.
func (e *Effect) Apply(ctx context.Context, b projections.Batch) error {
	if len(b.Events) > 0 {
		if err := e.Handle(ctx, b.Events); err != nil {
			return err
		}
	}
	return e.commit(ctx, b)
}

// Applied implements projections.Projection: how far the effect has done what the log asks for.
func (e *Effect) Applied(ctx context.Context, partition int) (events.Position, error) {
	cp, _, err := e.stored(ctx, partition)
	return cp.Position(), err
}
