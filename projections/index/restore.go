package index

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Restore implements projections.View. It writes the session's turns as the log has them. What a runner writes at the
// same time is put right by the next sweep.
func (v *View) Restore(ctx context.Context, s projections.Session) (settled []events.Position, err error) {
	p, notes, err := v.served(ctx)
	if err != nil {
		return nil, err
	}
	var at place
	if _, err := notes.Read(ctx, p.key("at", s.Partition), &at); err != nil || at.Seq < s.UpTo {
		return nil, err
	}
	if s.ID == "" {
		return []events.Position{s.Letter}, nil
	}
	for _, err := range v.cfg.Log.Session(ctx, s.ID, s.UpTo, at.Seq) {
		return nil, err // the view has applied more events of the session, or the log does not answer
	}
	c := &claim{of: p, partition: s.Partition, notes: notes, at: at, reuse: p.collection().Name}
	written, deleted, err := v.replanned(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := v.write(ctx, c, written, deleted, mayStand, v.embedder(batchPatience)); err != nil {
		return nil, err
	}
	return []events.Position{s.Letter}, nil
}

// replanned plans a session's events as if they came in one batch.
func (v *View) replanned(ctx context.Context, s projections.Session) ([]Object, []uuid.UUID, error) {
	out, err := newPlanner(&v.cfg, s.Partition).plan(ctx, s.Events)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range s.State.Turns {
		if o := out.objects[t.ID]; o != nil && t.Status != session.Finalized {
			out.drop(t.ID, s.Letter)
		}
	}
	written, deleted := out.split()
	return written, deleted, nil
}
