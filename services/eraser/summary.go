package eraser

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// voidFirst is the work for an event that voids summaries: those of the session that don't stand now are erased, and
// then comes what else the event asks for, if that is set. A summary changes nothing else in the fold of its session,
// so that it can always go.
func (e *Eraser) voidFirst(then task) task {
	return func(ctx context.Context, j *job) (remainder, error) {
		if err := e.eraseVoid(ctx, j.session, j.at); err != nil || then == nil {
			return remainder{}, err
		}
		return then(ctx, j)
	}
}

// eraseBelow erases the summaries of branches that a correction voids.
func (e *Eraser) eraseBelow(ctx context.Context, j *job) (remainder, error) {
	return remainder{}, e.eraseVoidBelow(ctx, j.session)
}

// eraseVoidBelow erases the summaries of the branches of a session, at any depth, that don't stand now. A branch has
// its mark before it has a summary: what this call does not find is met later, when the session has changed already. It
// reads only branches that ever had a summary, or branches of their own: most responses have neither.
func (e *Eraser) eraseVoidBelow(ctx context.Context, session string) error {
	known := map[int]bool{} // the partitions whose events up to now the index knows
	concern := func(branch string) (bool, error) {
		if k := events.Partition(branch, len(e.parts)); !known[k] {
			if err := e.ownersNow(ctx, k); err != nil {
				return false, err
			}
			known[k] = true
		}
		had := e.cfg.Owners.Had(branch)
		return had.Summaries || had.Branches, nil
	}
	visit := func(_ *events.SessionBranched, branch relative) (bool, error) {
		if !e.cfg.Owners.Had(branch.SessionID).Summaries {
			return true, nil
		}
		at := events.Position{Partition: events.Partition(branch.SessionID, len(e.parts)), Seq: branch.Applied}
		return true, e.eraseVoid(ctx, branch.SessionID, at)
	}
	return eachBranch(ctx, e.log, e.cfg.Rules, session, concern, visit)
}

// ownersNow waits until the index knows all events that a partition has now.
func (e *Eraser) ownersNow(ctx context.Context, partition int) error {
	head, err := e.log.Head(ctx, partition)
	if err != nil {
		return err
	}
	return e.cfg.Owners.Reached(ctx, head)
}

// eraseVoid erases the summaries of a session that don't stand now, and in the mirrors those up to a position.
func (e *Eraser) eraseVoid(ctx context.Context, sessionID string, at events.Position) error {
	own := session.New(sessionID, e.cfg.Rules)
	void := map[uint64]*events.SessionSummarized{}
	for r, err := range e.log.Session(ctx, sessionID, 0, maxSeq) {
		if err != nil {
			return err
		}
		own.Fold(r)
		if f, _ := r.Fact.(*events.SessionSummarized); r.Type == events.TypeSessionSummarized && (f == nil || !f.Void) {
			void[r.Position.Seq] = f
		}
	}
	if own.Erased != 0 {
		return nil // its erasure takes them
	}
	if len(void) > 0 {
		if err := e.inherit(ctx, own); err != nil {
			return err
		}
		for _, m := range own.Standing() {
			delete(void, m.At)
		}
	}
	if len(void) > 0 {
		if err := e.noteVoid(ctx, own, maps.Values(void)); err != nil {
			return err
		}
		if err := e.overwrite(ctx, sessionID, at, slices.Sorted(maps.Keys(void))); err != nil {
			return err
		}
	}
	return e.eraseMirrored(ctx, sessionID, at)
}

// noteVoid records of summaries which don't stand, and are about to leave the log, that they were void: so their
// requests make no others. What never counted as a summary is left out, and so is nil.
func (e *Eraser) noteVoid(
	ctx context.Context, s *session.State, summaries iter.Seq[*events.SessionSummarized],
) error {
	for f := range summaries {
		if f == nil {
			continue
		}
		m := s.Summary(events.SummaryID(f.SessionID, f.RequestID))
		if m == nil || s.Stands(m) || s.Voided(m.ID) {
			continue
		}
		note := &events.SessionSummarized{SessionID: f.SessionID, RequestID: f.RequestID, Void: true}
		if _, err := e.append(ctx, note); err != nil {
			return err
		}
	}
	return nil
}

// inherit adds to a branch the turns that it shares, as the log has them now.
func (e *Eraser) inherit(ctx context.Context, branch *session.State) error {
	list := branch.Fork().Segments()
	if len(list) == 0 {
		return nil
	}
	from := make([]*session.State, len(list))
	for i, g := range list {
		var err error
		if from[i], err = state(ctx, e.log, e.cfg.Rules, g.SessionID); err != nil {
			return err
		}
	}
	branch.Inherit(list, from, math.MaxInt)
	return nil
}
