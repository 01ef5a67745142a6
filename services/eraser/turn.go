package eraser

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// redact takes out what names a redacted turn before its redaction: of all redactions of
// the session that wait, unless one of them stands in the way.
func (e *Eraser) redact(ctx context.Context, j *job) (rest, error) {
	places := j.places()
	done, err := e.redactAll(ctx, j.session, places)
	if err != nil {
		return nil, err
	}
	if !done {
		if places, err = e.redactEach(ctx, j.session, places); err != nil {
			return nil, err
		}
	}
	if len(places) > 0 {
		if err := e.eraseMirrored(ctx, j.session, last(places)); err != nil {
			return nil, err
		}
	}
	for _, at := range places {
		if err := e.stamp(ctx, at, stamp{Place: PlaceLog}); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, end func(context.Context)) {
		var left atomic.Int64
		left.Store(int64(len(places)))
		for _, at := range places {
			e.await(ctx, []events.Position{at}, func(ctx context.Context, place string) error {
				return e.stamp(ctx, at, stamp{Place: place})
			}, func(ctx context.Context) {
				if left.Add(-1) == 0 {
					end(ctx)
				}
			})
		}
		if len(places) == 0 {
			end(ctx)
		}
	}, nil
}

func last(places []events.Position) events.Position {
	return slices.MaxFunc(places, func(a, b events.Position) int { return cmp.Compare(a.Seq, b.Seq) })
}

// redactEach does it for one redaction after the other, and gives those that could be
// carried out.
func (e *Eraser) redactEach(ctx context.Context, session string, places []events.Position) (carried []events.Position, err error) {
	for _, at := range places {
		done, err := e.redactAll(ctx, session, []events.Position{at})
		if err != nil {
			return nil, err
		}
		if done {
			carried = append(carried, at)
		} else {
			e.cfg.Logger.Error("a redaction does not carry the tombstones of what it covers, and its events stay in the log; no view shows them. Erase the session to be rid of them: turnledger erase SESSION",
				"session_id", session, "position", at)
		}
	}
	return carried, nil
}

// redactAll does it for some redactions, or for none, and says false, where the session
// would fold to another without what they cover.
func (e *Eraser) redactAll(ctx context.Context, session string, places []events.Position) (bool, error) {
	upTo := last(places)
	state, err := e.fold(ctx, session, upTo.Seq, nil)
	if err != nil {
		return false, err
	}
	gone := map[uuid.UUID]uint64{} // and where that was said
	for _, t := range state.Turns {
		if slices.ContainsFunc(places, func(at events.Position) bool { return at.Seq == t.Gone }) {
			gone[t.ID] = t.Gone
		}
	}
	var covered []uint64
	counts := map[uint64]int{}
	for r, err := range e.log.Session(ctx, session, 0, upTo.Seq-1) {
		if err != nil {
			return false, err
		}
		if turn, replaces := conversation.Named(r); r.Position.Seq < max(gone[turn], gone[replaces]) {
			covered = append(covered, r.Position.Seq)
			counts[max(gone[turn], gone[replaces])]++
		}
	}
	if len(covered) == 0 {
		return true, nil
	}
	without, err := e.fold(ctx, session, upTo.Seq, covered)
	if err != nil || !state.Same(without) {
		return false, err
	}
	for _, at := range places {
		versions := map[uuid.UUID]bool{}
		for id, seq := range gone {
			if seq == at.Seq {
				versions[id] = true
			}
		}
		if err := e.deleteDocuments(ctx, at, session, versions); err != nil {
			return false, err
		}
	}
	for _, at := range places {
		if n := counts[at.Seq]; n > 0 {
			if err := e.stamp(ctx, at, stamp{Place: PlaceLog, Erased: &n, Open: true}); err != nil {
				return false, err
			}
		}
	}
	return true, e.overwrite(ctx, session, upTo, covered)
}

// overwrite takes out events from the newest back, each on disk before the next: what a
// power failure brings back are the oldest.
func (e *Eraser) overwrite(ctx context.Context, session string, at events.Position, seqs []uint64) error {
	for _, seq := range slices.Backward(seqs) {
		if err := e.speed.Wait(ctx); err != nil {
			return err
		}
		if _, err := e.log.Erase(ctx, events.Position{Partition: at.Partition, Seq: seq}); err != nil {
			return err
		}
		if err := e.log.Settle(ctx, at.Partition); err != nil {
			return err
		}
	}
	e.cfg.Logger.Info("what was redacted is erased from the log", "session_id", session, "position", at, "events", len(seqs))
	return nil
}

// fold gives the session up to a sequence, without some events of it.
func (e *Eraser) fold(ctx context.Context, session string, upTo uint64, without []uint64) (*conversation.State, error) {
	s := conversation.New(session, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, session, 0, upTo) {
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
