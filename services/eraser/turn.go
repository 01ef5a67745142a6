package eraser

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// redact erases the events that name a redacted turn and stand before its redaction. It carries out all waiting
// redactions of the session in one go. If that would change what the session folds to, it carries out one after the
// other.
func (e *Eraser) redact(ctx context.Context, j *job) (rest, error) {
	places := j.places()
	done, err := e.redactAll(ctx, j.session, places)
	if err != nil {
		return rest{}, err
	}
	if !done {
		if places, err = e.redactEach(ctx, j.session, places); err != nil {
			return rest{}, err
		}
	}
	if len(places) > 0 {
		if err := e.eraseMirrored(ctx, j.session, last(places)); err != nil {
			return rest{}, err
		}
	}
	var left rest
	for _, at := range places {
		write := func(ctx context.Context, place string) error { return e.stamp(ctx, at, stamp{Place: place}) }
		if err := write(ctx, PlaceLog); err != nil {
			return rest{}, err
		}
		left.open = append(left.open, awaited{[]events.Position{at}, write})
	}
	return left, nil
}

func last(places []events.Position) events.Position {
	return slices.MaxFunc(places, func(a, b events.Position) int { return cmp.Compare(a.Seq, b.Seq) })
}

// redactEach carries out one redaction after the other, and returns those that could be carried out.
func (e *Eraser) redactEach(
	ctx context.Context, session string, places []events.Position,
) (carried []events.Position, err error) {
	for _, at := range places {
		done, err := e.redactAll(ctx, session, []events.Position{at})
		if err != nil {
			return nil, err
		}
		if done {
			carried = append(carried, at)
		} else {
			e.cfg.Logger.Error("a redaction does not carry the tombstones of what it covers, and its events stay in "+
				"the log; no view shows them. Erase the session to be rid of them: turnledger erase SESSION",
				"session_id", session, "position", at)
		}
	}
	return carried, nil
}

// redactAll carries out some redactions. It does nothing and returns false if the session would fold to another state
// without the events that the redactions cover.
func (e *Eraser) redactAll(ctx context.Context, session string, places []events.Position) (bool, error) {
	upTo := last(places)
	state, err := e.fold(ctx, session, upTo.Seq, nil)
	if err != nil {
		return false, err
	}
	gone := map[uuid.UUID]uint64{}       // the sequence of the redaction, by turn
	versions := map[uint64][]uuid.UUID{} // the turns, by redaction
	for _, t := range state.Turns {
		if slices.ContainsFunc(places, func(at events.Position) bool { return at.Seq == t.Gone }) {
			gone[t.ID] = t.Gone
			versions[t.Gone] = append(versions[t.Gone], t.ID)
		}
	}
	var covered []uint64
	counts := map[uint64]int{}
	for r, err := range e.log.Session(ctx, session, 0, upTo.Seq-1) {
		if err != nil {
			return false, err
		}
		turn, replaces := conversation.Named(r)
		if by := max(gone[turn], gone[replaces]); r.Position.Seq < by {
			covered = append(covered, r.Position.Seq)
			counts[by]++
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
		if err := e.deleteDocuments(ctx, at, session, versions[at.Seq]); err != nil {
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

// overwrite takes out events from the newest back, each on disk before the next: what a power failure brings back are
// the oldest.
func (e *Eraser) overwrite(ctx context.Context, session string, at events.Position, seqs []uint64) error {
	for _, seq := range slices.Backward(seqs) {
		if err := e.erase(ctx, events.Position{Partition: at.Partition, Seq: seq}); err != nil {
			return err
		}
	}
	e.cfg.Logger.Info("what was redacted is erased from the log",
		"session_id", session, "position", at, "events", len(seqs))
	return nil
}

// erase takes one event out of the log, and off the disk.
func (e *Eraser) erase(ctx context.Context, at events.Position) error {
	if err := e.speed.Wait(ctx); err != nil {
		return err
	}
	if _, err := e.log.Erase(ctx, at); err != nil {
		return err
	}
	return e.log.Settle(ctx, at.Partition)
}

// fold returns the session up to a sequence, without some events of it.
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
func (e *Eraser) deleteDocuments(ctx context.Context, at events.Position, session string, turns []uuid.UUID) error {
	for _, d := range e.cfg.Documents {
		if err := d.DeleteTurns(ctx, at, session, turns); err != nil {
			return err
		}
	}
	return nil
}
