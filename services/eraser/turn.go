package eraser

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// redact takes out what names a redacted turn before its redaction.
func (e *Eraser) redact(ctx context.Context, j *job) (func(context.Context) error, error) {
	state, err := e.fold(ctx, j, nil)
	if err != nil {
		return nil, err
	}
	versions := map[uuid.UUID]bool{}
	for _, t := range state.Turns {
		if t.Gone == j.at.Seq {
			versions[t.ID] = true
		}
	}
	var covered []uint64
	for r, err := range e.log.Session(ctx, j.session, 0, j.at.Seq-1) {
		if err != nil {
			return nil, err
		}
		if turn, replaces := conversation.Named(r); versions[turn] || versions[replaces] {
			covered = append(covered, r.Position.Seq)
		}
	}
	if len(covered) == 0 {
		return nil, nil
	}
	without, err := e.fold(ctx, j, covered)
	if err != nil {
		return nil, err
	}
	if !state.Same(without) {
		e.cfg.Logger.Error("a redaction does not carry the tombstones of what it covers, and its events stay in the log; no view shows them. Erase the session to be rid of them: turnledger erase --session",
			"session_id", j.session, "position", j.at)
		return nil, nil
	}
	if err := e.deleteDocuments(ctx, j.at, j.session, versions); err != nil {
		return nil, err
	}
	for _, seq := range slices.Backward(covered) {
		if err := e.urgentRate.Wait(ctx); err != nil {
			return nil, err
		}
		if _, err := e.log.Erase(ctx, events.Position{Partition: j.at.Partition, Seq: seq}); err != nil {
			return nil, err
		}
		// Each on disk before the next: what a power failure brings back are the oldest.
		if err := e.log.Settle(ctx, j.at.Partition); err != nil {
			return nil, err
		}
	}
	e.cfg.Logger.Info("a redacted turn is erased from the log", "session_id", j.session, "position", j.at, "events", len(covered))
	return nil, nil
}

// eraseLate takes out the event itself.
func (e *Eraser) eraseLate(ctx context.Context, j *job) (func(context.Context) error, error) {
	if err := e.urgentRate.Wait(ctx); err != nil {
		return nil, err
	}
	if _, err := e.log.Erase(ctx, j.at); err != nil {
		return nil, err
	}
	e.cfg.Logger.Info("an event that came after the erasure of what it names is erased", "session_id", j.session, "position", j.at)
	return nil, e.log.Settle(ctx, j.at.Partition)
}

// fold gives the session up to the job's event, without some events of it.
func (e *Eraser) fold(ctx context.Context, j *job, without []uint64) (*conversation.State, error) {
	s := conversation.New(j.session, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, j.session, 0, j.at.Seq) {
		if err != nil {
			return nil, err
		}
		if _, found := slices.BinarySearch(without, r.Position.Seq); !found {
			s.Fold(r)
		}
	}
	return s, nil
}

// deleteDocuments asks the other stores to delete turns.
func (e *Eraser) deleteDocuments(ctx context.Context, at events.Position, session string, turns map[uuid.UUID]bool) error {
	ids := make([]uuid.UUID, 0, len(turns))
	for id := range turns {
		ids = append(ids, id)
	}
	for _, d := range e.cfg.Documents {
		if err := d.DeleteTurns(ctx, at, session, ids); err != nil {
			return err
		}
	}
	return nil
}
