package fleet

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Place is a view, or what is listed beside the views, as a place that an erasure reaches.
type Place struct {
	log     *jetlog.Log
	name    string
	applied func(ctx context.Context, partition int) (events.Position, error)
}

// NewPlace makes a place of what follows a log.
func NewPlace(
	log *jetlog.Log, name string, applied func(ctx context.Context, partition int) (events.Position, error),
) Place {
	return Place{log, name, applied}
}

// Places are those of all views that this process feeds or reads, of those in stores that others feed, and of
// what is listed beside them: whoever is asked, an erasure is complete when all are done.
func (f *Fleet) Places() []Place { return f.places }

// Name of the place in receipts.
func (p Place) Name() string { return p.name }

// Reached reports whether the place has applied the log up to a position. Where all that it has not applied was
// erased, it waits for nothing.
func (p Place) Reached(ctx context.Context, at events.Position) (bool, error) {
	applied, err := p.applied(ctx, at.Partition)
	if err != nil || applied.Seq >= at.Seq {
		return err == nil, err
	}
	return p.log.Still(ctx, at.Partition, applied.Seq, at.Seq)
}
