package index

import (
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// Scrub rebuilds the index from time to time for the sake of what was deleted: a store hides an object at once and
// keeps its bytes in its files, until the collection is dropped.
type Scrub struct {
	View *View
	// After is the least age of a generation that is replaced.
	After time.Duration
	// Rebuild begins a rebuild in this process.
	Rebuild func(ctx context.Context) error
}

// scrubLook is the pause between two looks.
const scrubLook = time.Minute

// Run looks until ctx ends; then it returns nil.
func (s Scrub) Run(ctx context.Context) error {
	for pause.For(ctx, min(scrubLook, s.After)) {
		due, err := s.due(ctx)
		if err == nil && due {
			err = s.Rebuild(ctx)
		}
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, projections.ErrRebuilding):
		default:
			s.View.cfg.Logger.Warn("the files of the index are scrubbed later", "err", err)
		}
	}
	return nil
}

// due reports whether the served generation is old enough, and its files may hold what was deleted and has left the
// log.
func (s Scrub) due(ctx context.Context) (bool, error) {
	v := s.View
	p, notes, err := v.served(ctx)
	if err != nil || v.cfg.Now().Sub(p.BegunAt) < s.After {
		return false, err
	}
	// A rebuild would move the index to this store.
	if there, err := v.holds(ctx, p); err != nil || !there {
		return false, err
	}
	var forgotten uint64
	if _, err := notes.Read(ctx, forgottenKey, &forgotten); err != nil || forgotten >= p.Generation {
		return err == nil, err
	}
	now, err := v.clean(ctx)
	if err != nil {
		return false, err
	}
	for k := range v.cfg.Partitions {
		var at place
		if _, err := notes.Read(ctx, p.key("at", k), &at); err != nil {
			return false, err
		}
		if k < len(p.Clean) && at.Deleted > p.Clean[k] && now[k] >= at.Deleted {
			return true, nil
		}
	}
	return false, nil
}
