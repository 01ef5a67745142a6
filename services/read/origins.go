package read

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// origin returns a session with all its turns, and the position that it is as new as. Nobody may change the state.
func (r *Reader) origin(
	ctx context.Context, sessionID string, head func() (events.Position, error),
) (*session.State, events.Position, error) {
	at, err := head()
	if err != nil {
		return nil, at, err
	}
	o, held := r.origins.get(sessionID)
	if !held || o.head.Load() != at.Seq {
		last, err := r.log.Last(ctx, sessionID)
		if err != nil {
			return nil, at, err
		}
		if !held || o.last != last {
			if o, err = r.loadOrigin(ctx, sessionID, last, o); err != nil {
				return nil, at, err
			}
		}
		o.head.Store(at.Seq)
	}
	at.Seq = max(at.Seq, o.state.Applied)
	return o.state, at, nil
}

// loadOrigin folds a session whose last sequence is last, 0 if the log does not know it.
func (r *Reader) loadOrigin(ctx context.Context, sessionID string, last uint64, held *origin) (*origin, error) {
	o := &origin{}
	if last == 0 {
		o.state = session.New(sessionID, r.cfg.Rules)
		return o, nil
	}
	var err error
	if held != nil && held.last > 0 && held.last < last {
		if o.state, err = r.extended(ctx, sessionID, held); err != nil {
			return nil, err
		}
	}
	if o.state == nil {
		o.state, err = session.Folded(sessionID, r.cfg.Rules, r.log.Session(ctx, sessionID, 0, math.MaxUint64))
	}
	if err == nil {
		o.last = max(last, o.state.Applied) // something may have come since
		r.origins.set(sessionID, o, o.weight())
	}
	return o, err
}

// takesAway reports whether a session is folded anew after a change: texts may have left the log since it was held.
func takesAway(c session.Change) bool {
	switch c.Kind.Group() {
	case session.GroupGone, session.GroupSessionGone:
		return true
	case session.GroupText:
		return len(c.Turns) > 0
	case session.GroupHead:
		return c.Kind == session.Reset
	case session.GroupNone:
	}
	return false
}

// extended returns a session that was held with the events that came since, as long as these only add to it; nil
// otherwise. The first event that it reads is the last one that was held: if that has left the log, others may have.
func (r *Reader) extended(ctx context.Context, sessionID string, held *origin) (*session.State, error) {
	var state *session.State
	for e, err := range r.log.Session(ctx, sessionID, held.last-1, math.MaxUint64) {
		if err != nil {
			return nil, err
		}
		if state == nil && e.Position.Seq == held.last {
			state = held.state.Clone()
			continue
		}
		if state == nil {
			return nil, nil
		}
		if c := state.Fold(e); c.NewBoundary || c.VoidsSummary || takesAway(c) {
			return nil, nil
		}
	}
	return state, nil
}

// origin is a session with all its turns. It is as the log has it while the last sequence of its subject is
// last; and so it was when head was the end of its partition.
type origin struct {
	state *session.State
	head  atomic.Uint64
	last  uint64
}

const (
	// originBytes bounds the origins that a reader holds.
	originBytes = 64 << 20
	// turnWeight is the weight of a turn without its texts: the turn, its question and answer, and its place in the
	// index, rounded up.
	turnWeight = 512
	// heldLineages bounds the lineages that a reader holds: 10 MB, if each has 32 segments.
	heldLineages = 1 << 10
)

// segments returns the segments of a branch, which nobody may change.
func (r *Reader) segments(f session.Fork) []events.Segment {
	list, held := r.lineages.Get(f.Lineage)
	if !held {
		list = f.Segments()
		r.lineages.Add(f.Lineage, list)
	}
	return list
}

// weight estimates what an origin takes in memory.
func (o *origin) weight() (bytes int) {
	for _, t := range o.state.Turns {
		bytes += turnWeight
		if q := t.Question; q != nil {
			bytes += len(q.QuestionNeutral) + len(q.QuestionTranslated) + len(q.QuestionMessages) + len(q.Metadata)
		}
		if q := t.Answer; q != nil {
			bytes += len(q.AnswerNeutral) + len(q.AnswerTranslated) + len(q.AnswerMessages)
		}
	}
	return bytes
}
