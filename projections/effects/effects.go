// Package effects lets a projection act on the outside world instead of keeping rows. It has no store of its own, so
// its checkpoints are in the desk, with its dead letters and its runners. Repeating its action must be harmless, since
// the checkpoint is written after the action.
//
// An effect can't be rebuilt, and a rebuild of other views never runs it.
package effects

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// Handler acts on events, in order. It marks an error that a retry can't mend with projections.Permanent.
type Handler interface {
	Name() string
	Handle(ctx context.Context, batch []projections.Judged) error
}

// Config of an Effect.
type Config struct {
	// Desk keeps the checkpoints.
	Desk *desk.Desk
	// Log and Rules are for the retry of dead letters.
	Log   projections.LogReader
	Rules session.Rules
}

// Effect is a projection of a Handler. Safe for concurrent use.
type Effect struct {
	Handler
	cfg Config
}

var _ projections.Projection = (*Effect)(nil)

// New makes an effect; it does no I/O.
func New(h Handler, cfg Config) *Effect { return &Effect{h, cfg} }

func (e *Effect) move(
	ctx context.Context, partition int, change func(*projections.Checkpoint) bool,
) (projections.Checkpoint, error) {
	return e.cfg.Desk.Move(ctx, e.Name(), partition, change)
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
