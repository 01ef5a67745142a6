package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// Rebuilding is how far the rebuild of a view is, in events, or that what it filled is served.
type Rebuilding struct {
	Done, Of uint64
	Served   bool
}

// RebuildError says how a rebuild ended: the view is served as it was.
type RebuildError struct{ Why string }

func (e *RebuildError) Error() string { return e.Why }

// States of a rebuild.
const (
	stateFilling = "rebuilding"
	stateFailed  = "rebuild_failed"
)

// RebuildOf returns how far the rebuild is that fills a generation of a view; a *RebuildError where it has ended and
// the generation is not served.
func (c *Client) RebuildOf(ctx context.Context, name string, generation int) (r Rebuilding, err error) {
	all, err := c.Projections(ctx)
	if err != nil {
		return r, err
	}
	served, filling := 0, false
	for _, p := range all {
		mine := p.Generation == generation
		switch {
		case p.Name != name:
		case p.State == stateFailed && mine:
			return r, &RebuildError{p.LastError + " (the view is served as it was)"}
		case p.State == stateFilling && mine:
			filling = true
			done, _ := events.ParsePosition(p.Position) // what is none counts for nothing
			head, _ := events.ParsePosition(p.Head)
			r.Done, r.Of = r.Done+done.Seq, r.Of+head.Seq
		case p.State != stateFailed && p.State != stateFilling:
			served = max(served, p.Generation)
		}
	}
	if !filling && served < generation {
		return r, &RebuildError{fmt.Sprintf("the rebuild ended without being served: the server was stopped or started "+
			"again; the view is served as it was (generation %d)", served)}
	}
	r.Served = !filling
	return r, nil
}

// Rebuildable returns the names of the views that the server feeds.
func (c *Client) Rebuildable(ctx context.Context) (names []string, err error) {
	all, err := c.Projections(ctx)
	for _, p := range all {
		if p.Rebuildable && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names, err
}
