package index

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// forgottenKey is the note of the number of the last generation that may hold what Forget has deleted, in its files.
const forgottenKey = "index.forgotten"

var errArriving = projections.NotYet(projections.Unavailable(errors.New(
	"the index has not applied yet what is to be forgotten, or is being rebuilt; that waits for it")))

// Forget deletes the turns of a session whose events up to a position a retention is about to remove from the log. No
// event says so, and only an index that was fed with anonymous sessions, by whatever process, has such turns. It fails
// with projections.ErrNotYet while one of them may still arrive.
func (v *View) Forget(ctx context.Context, sessionID string, upTo events.Position) error {
	p, _, err := v.pointer(ctx, v.cfg.Notes)
	if err != nil || p.Generation == 0 || !v.cfg.Anonymous && (p.Anonymous == none || p.Anonymous == "") {
		return err
	}
	var at place
	if _, err := v.cfg.Notes.Read(ctx, p.key("at", upTo.Partition), &at); err != nil {
		return failed(err, "read a checkpoint")
	}
	all, err := v.cfg.Store.List(ctx)
	if err == nil {
		all, err = v.ofOwn(ctx, all)
	}
	if err != nil {
		return err
	}
	if at.Seq < upTo.Seq || len(all) > 1 {
		return errArriving
	}
	s, err := v.cfg.session(ctx, sessionID, upTo.Seq)
	if err != nil {
		return err
	}
	ids := make([]uuid.UUID, len(s.Turns))
	for i, t := range s.Turns {
		ids[i] = t.ID
	}
	if err := v.cfg.Notes.Put(ctx, forgottenKey, p.Last); err != nil {
		return failed(err, "note that the files are to be scrubbed")
	}
	return v.cfg.Store.Delete(ctx, p.collection().Name, ids)
}
