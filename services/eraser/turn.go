package eraser

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// redact erases the events that name a redacted or pruned turn and stand before its redaction or prune. It carries out
// all waiting redactions and prunes of the session at once. If that would change what the session folds to, it carries
// them out one by one.
func (e *Eraser) redact(ctx context.Context, j *job) (remainder, error) {
	places := j.positions()
	done, err := e.redactAll(ctx, j.session, places)
	if err != nil {
		return remainder{}, err
	}
	if !done {
		if places, err = e.redactEach(ctx, j.session, places); err != nil {
			return remainder{}, err
		}
	}
	if len(places) > 0 {
		if err := e.eraseMirrored(ctx, j.session, last(places)); err != nil {
			return remainder{}, err
		}
		if err := e.eraseVoidBelow(ctx, j.session); err != nil {
			return remainder{}, err
		}
	}
	left := remainder{prove: func(ctx context.Context) error { return e.proveStamps(ctx, places) }}
	for _, at := range places {
		write := func(ctx context.Context, place string) error { return e.stamp(ctx, at, stamp{Place: place}) }
		left.open = append(left.open, awaited{[]events.Position{at}, write})
	}
	return left, nil
}

func last(places []events.Position) events.Position {
	return slices.MaxFunc(places, func(a, b events.Position) int { return cmp.Compare(a.Seq, b.Seq) })
}

// redactEach carries out redactions one by one, and returns those that it could carry out.
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
func (e *Eraser) redactAll(ctx context.Context, sessionID string, places []events.Position) (bool, error) {
	upTo := last(places)
	state, err := e.fold(ctx, sessionID, upTo.Seq, nil)
	if err != nil {
		return false, err
	}
	gone := map[uuid.UUID]uint64{}       // the sequence of the redaction or prune, by turn
	versions := map[uint64][]uuid.UUID{} // the redacted turns, by redaction
	for _, t := range state.Turns {
		by := max(t.Redacted, t.PrunedAt())
		if !slices.ContainsFunc(places, func(at events.Position) bool { return at.Seq == by }) {
			continue
		}
		if gone[t.ID] = by; t.Redacted != 0 { // of a pruned turn the other stores get what is left
			versions[by] = append(versions[by], t.ID)
		}
	}
	left := leftTurns{eraser: e, session: sessionID, noted: map[string]bool{}}
	if err := left.noteAll(ctx, state, gone); err != nil {
		return false, err
	}
	var covered []uint64
	var summaries []*events.SessionSummarized
	counts := map[uint64]int{}
	for r, err := range e.log.Session(ctx, sessionID, 0, upTo.Seq-1) {
		if err != nil {
			return false, err
		}
		turn, replaces := session.Named(r)
		by := max(gone[turn], gone[replaces])
		for _, id := range events.Covers(r.Fact) {
			by = max(by, gone[id])
		}
		if r.Position.Seq < by {
			covered = append(covered, r.Position.Seq)
			counts[by]++
			if len(events.TextsOf(r.Fact).Settings) > 0 { // of a response
				if err := left.note(ctx, turn.String()); err != nil {
					return false, err
				}
			}
			if f, is := r.Fact.(*events.SessionSummarized); is {
				summaries = append(summaries, f)
			}
		}
	}
	if len(covered) == 0 {
		return true, nil
	}
	without, err := e.fold(ctx, sessionID, upTo.Seq, covered)
	if err != nil || !state.Same(without) {
		return false, err
	}
	for _, at := range places {
		if err := e.deleteDocuments(ctx, at, sessionID, versions[at.Seq]); err != nil {
			return false, err
		}
	}
	if err := e.openStamps(ctx, places, counts); err != nil {
		return false, err
	}
	if err := e.noteVoid(ctx, state, slices.Values(summaries)); err != nil {
		return false, err
	}
	return true, e.overwrite(ctx, sessionID, upTo, covered)
}

// overwrite erases events from the newest back, and brings each erasure to disk before the next. So a power failure can
// only bring back the oldest of them.
func (e *Eraser) overwrite(ctx context.Context, session string, at events.Position, seqs []uint64) error {
	for _, seq := range slices.Backward(seqs) {
		if err := e.erase(ctx, events.Position{Partition: at.Partition, Seq: seq}); err != nil {
			return err
		}
	}
	e.cfg.Logger.Info("what was redacted or replaced is erased from the log",
		"session_id", session, "position", at, "events", len(seqs))
	return nil
}

// erase erases one event from the log and from the disk.
func (e *Eraser) erase(ctx context.Context, at events.Position) error {
	if err := e.speed.Wait(ctx); err != nil {
		return err
	}
	if _, err := e.log.Erase(ctx, at); err != nil {
		return err
	}
	return e.log.Settle(ctx, at.Partition)
}

// fold folds the session up to a sequence, leaving some of its events out.
func (e *Eraser) fold(ctx context.Context, sessionID string, upTo uint64, without []uint64) (*session.State, error) {
	s := session.New(sessionID, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, sessionID, 0, upTo) {
		if err != nil {
			return nil, err
		}
		if _, found := slices.BinarySearch(without, r.Position.Seq); !found {
			s.Fold(r)
		}
	}
	return s, nil
}

// deleteDocuments asks the other store to delete turns.
func (e *Eraser) deleteDocuments(ctx context.Context, at events.Position, session string, turns []uuid.UUID) error {
	if e.cfg.Documents == nil {
		return nil
	}
	return e.cfg.Documents.DeleteTurns(ctx, at, session, turns)
}
