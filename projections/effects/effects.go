// Package effects lets a projection act on the outside world instead of keeping rows. It has no store of its own, so
// its checkpoints are in a NATS bucket; its dead letters and its runners are in the desk, like those of views.
// Repeating its action must be harmless, since the checkpoint is written after the action.
//
// An effect can't be rebuilt, and a rebuild of other views never runs it.
package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Handler acts on events, in order. It marks an error that a retry can't mend with projections.Permanent.
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
	Rules session.Rules
}

// Effect is a projection of a Handler. Safe for concurrent use.
type Effect struct {
	Handler
	js  jetstream.JetStream
	cfg Config
}

var _ projections.Projection = (*Effect)(nil)

// New makes an effect; it does no I/O.
func New(js jetstream.JetStream, h Handler, cfg Config) *Effect {
	return &Effect{Handler: h, js: js, cfg: cfg}
}

// open returns the bucket, and creates it if it is missing.
func (e *Effect) open(ctx context.Context) (bucket jetstream.KeyValue, err error) {
	name := "turnledger-" + e.Name()
	defer projections.Wrap(&err, "open the bucket %s", name)
	bucket, err = e.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = e.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "how far the effect " + e.Name() + " is", Replicas: max(e.cfg.Replicas, 1),
			History: 1,
		})
	}
	return bucket, err
}

// move reads the checkpoint of a partition, and writes the one that change makes of it. It fails with ErrFenced if
// change returns false, or another process wrote meanwhile.
func (e *Effect) move(
	ctx context.Context, partition int, change func(*projections.Checkpoint) bool,
) (cp projections.Checkpoint, err error) {
	bucket, err := e.open(ctx)
	if err != nil {
		return cp, err
	}
	key, revision := "checkpoint."+strconv.Itoa(partition), uint64(0)
	cp.Partition = partition
	entry, err := bucket.Get(ctx, key)
	if err == nil {
		revision, err = entry.Revision(), json.Unmarshal(entry.Value(), &cp)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return cp, fmt.Errorf("read a checkpoint: %w", err)
	}
	if change == nil {
		return cp, nil
	}
	if !change(&cp) {
		return cp, projections.ErrFenced
	}
	raw, err := json.Marshal(cp)
	if err == nil {
		_, err = bucket.Update(ctx, key, raw, revision)
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return cp, projections.ErrFenced
	}
	if err != nil {
		return cp, fmt.Errorf("write a checkpoint: %w", err)
	}
	return cp, nil
}

// Claim implements projections.Projection.
func (e *Effect) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	return e.move(ctx, partition, func(cp *projections.Checkpoint) bool {
		cp.Epoch++
		return true
	})
}

// Apply implements projections.Projection. It does what the batch asks for, and then moves the checkpoint.
func (e *Effect) Apply(ctx context.Context, b projections.Batch) error {
	if len(b.Events) > 0 {
		if err := e.Handle(ctx, b.Events); err != nil {
			return err
		}
	}
	_, err := e.move(ctx, b.To.Partition, func(cp *projections.Checkpoint) bool {
		goesOn := cp.Seq == b.From.Seq && cp.Epoch == b.From.Epoch
		*cp = b.To
		return goesOn
	})
	return err
}

// Applied implements projections.Projection. It returns the position up to which the effect has acted.
func (e *Effect) Applied(ctx context.Context, partition int) (events.Position, error) {
	cp, err := e.move(ctx, partition, nil)
	return cp.Position(), err
}
