package services

import (
	"context"

	"github.com/turnledger/turnledger/projections"
)

// ProjectionReader returns how far the views are.
type ProjectionReader interface {
	Projections(ctx context.Context) ([]projections.Status, error)
}

// ProjectionKeeper rebuilds and verifies the views that this process feeds. Its errors are projections.ErrNoProjection,
// ErrNotFed, ErrRebuilding and ErrNoRebuild, plain or wrapped.
type ProjectionKeeper interface {
	// Rebuild begins a rebuild, which continues after Rebuild returns, and returns the number of the generation that is
	// being filled.
	Rebuild(ctx context.Context, name string) (generation uint64, err error)
	// CancelRebuild cancels the rebuild that runs in this process. The view still serves the generation from before.
	CancelRebuild(ctx context.Context, name string) (generation uint64, err error)
	// Verify compares a view with the log, or only sample of its sessions. It calls progress now and then and found for
	// each difference, and returns how many sessions it compared.
	Verify(ctx context.Context, name string, sample int, progress func(done, of uint64) error,
		found func(projections.Difference) error) (sessions int, err error)
}
