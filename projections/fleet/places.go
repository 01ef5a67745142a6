package fleet

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Place is a view, or an effect beside the views, as a place that an erasure reaches.
type Place struct {
	log     *jetlog.Log
	name    string
	applied func(ctx context.Context, partition int) (events.Position, error)
}

// NewPlace makes a place.
func NewPlace(
	log *jetlog.Log, name string, applied func(ctx context.Context, partition int) (events.Position, error),
) Place {
	return Place{log, name, applied}
}

// Places returns the places of all views in the fleet, also of those in stores that this process neither feeds nor
// reads, and of the effects beside them. Processes with the same stores return the same places, but for a view in
// memory: only its own process has it in the fleet.
func (f *Fleet) Places() []Place { return f.places }

// Name of the place in receipts.
func (p Place) Name() string { return p.name }

// Reached reports whether the place has applied the log up to a position. Erased events up to there count as applied,
// since they never come.
func (p Place) Reached(ctx context.Context, at events.Position) (bool, error) {
	applied, err := p.applied(ctx, at.Partition)
	if err != nil || applied.Seq >= at.Seq {
		return err == nil, err
	}
	return p.log.Still(ctx, at.Partition, applied.Seq, at.Seq)
}
