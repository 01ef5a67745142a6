package services

import (
	"context"

	"github.com/turnledger/turnledger/projections"
)

// ProjectionReader returns how far the views are.
type ProjectionReader interface {
	Projections(ctx context.Context) ([]projections.Status, error)
}

// ProjectionKeeper rebuilds and verifies the views that this process feeds. Its errors are
// projections.ErrNoProjection, ErrNotFed, ErrRebuilding and ErrNoRebuild, as they are or wrapped.
type ProjectionKeeper interface {
	// Rebuild begins a rebuild, which goes on after Rebuild returns, and returns the number of
	// the generation that is being filled.
	Rebuild(ctx context.Context, name string) (generation uint64, err error)
	// CancelRebuild breaks off the rebuild that runs in this process; what is served stays as
	// it was.
	CancelRebuild(ctx context.Context, name string) (generation uint64, err error)
	// Verify compares a view with the log, or sample of its sessions. It calls progress now and
	// then and found with each difference, and returns how many sessions it looked at.
	Verify(ctx context.Context, name string, sample int, progress func(done, of uint64) error,
		found func(projections.Difference) error) (sessions int, err error)
}
