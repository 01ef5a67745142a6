package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// RebuildError says why a rebuild ended without success. The view still serves the generation from before.
type RebuildError struct{ Why string }

func (e *RebuildError) Error() string { return e.Why }

// AwaitRebuild polls a rebuild until the generation that it fills is served, and calls told with the progress in
// events. It fails with a *RebuildError if the generation will never be served.
func (c *Client) AwaitRebuild(
	ctx context.Context, name string, generation int, every time.Duration, progress func(done, of uint64),
) error {
	for ; ; pause.For(ctx, every) {
		all, err := c.Projections(ctx)
		if err != nil {
			return err
		}
		done, of, served, err := rebuildOf(all, name, generation)
		if served || err != nil {
			return err
		}
		progress(done, of)
	}
}

func rebuildOf(all []Projection, name string, generation int) (done, of uint64, served bool, err error) {
	newest, filling := 0, false
	for _, p := range all {
		failed, under := p.State == "rebuild_failed", p.State == "rebuilding"
		switch mine := p.Generation == generation; {
		case p.Name != name:
		case failed && mine:
			return 0, 0, false, &RebuildError{p.LastError + " (the view is served as it was)"}
		case under && mine:
			filling = true
			at, _ := events.ParsePosition(p.Position) // without a position nothing is done yet
			head, _ := events.ParsePosition(p.Head)
			done, of = done+at.Seq, of+head.Seq
		case !failed && !under:
			newest = max(newest, p.Generation)
		}
	}
	if !filling && newest < generation {
		return 0, 0, false, &RebuildError{fmt.Sprintf("the rebuild ended without being served: "+
			"the server was stopped or started again; the view is served as it was (generation %d)", newest)}
	}
	return done, of, !filling, nil
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
