package recenttest

import (
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
)

// reference computes what a view must hold of one session. It folds the whole session, and remembers from which place
// on a view would still have the turns.
type reference struct {
	limits recent.Limits
	now    time.Time

	truth   *conversation.State
	held    bool
	floor   uint64
	whole   bool
	applied uint64
}

func newReference(sessionID string, rules conversation.Rules, limits recent.Limits, now time.Time) *reference {
	rules.Slim = false
	return &reference{limits: limits, now: now, truth: conversation.New(sessionID, rules)}
}

// before folds an event from before the view's beginning.
func (r *reference) before(e events.Recorded) { r.truth.Fold(e) }

// parked folds an event that the view has parked.
func (r *reference) parked(e events.Recorded) {
	r.truth.Fold(e)
	r.held = false
}

// apply folds an event that the view applies.
func (r *reference) apply(e events.Recorded) {
	found := r.truth.Found()
	kind := r.truth.Fold(e).Kind
	if !kind.ChangesSession() {
		r.applied = e.Position.Seq
		return
	}
	if !r.young() {
		r.held = false
		return
	}
	if !r.held {
		r.held, r.floor, r.whole = true, e.Position.Seq, !found && r.truth.Found()
	}
	r.applied = e.Position.Seq
	if kind == conversation.Corrected || kind == conversation.TurnGone {
		r.whole = false
	}
	if kind == conversation.Started {
		r.cap()
	}
}

// cap leaves the newest turns.
func (r *reference) cap() {
	if turns := r.turns(); len(turns) > r.limits.MaxTurns {
		r.floor, r.whole = turns[len(turns)-r.limits.MaxTurns].Place, false
	}
}

// young reports whether the session's last activity, its erasure, or the beginning of a session without activity is no
// longer ago than the TTL.
func (r *reference) young() bool {
	last := r.truth.LastActive
	if last.IsZero() {
		last = r.truth.CreatedAt
	}
	return r.now.Sub(last) <= r.limits.TTL || r.now.Sub(r.truth.ErasedAt) <= r.limits.TTL
}

// restored makes the view hold the whole session from the log.
func (r *reference) restored() {
	r.held = r.young()
	r.floor, r.applied = 0, r.truth.Applied
	r.whole = len(r.turns()) == len(r.truth.Turns)
	r.cap()
}

func (r *reference) turns() []*conversation.Turn {
	out := []*conversation.Turn{}
	for _, t := range r.truth.Turns {
		if t.Place >= r.floor && (t.Status == conversation.Pending || t.Status == conversation.Finalized) {
			out = append(out, t)
		}
	}
	return out
}

// load returns the state that a Load must return, or nil.
func (r *reference) load(shown int) *conversation.State {
	if !r.held {
		return nil
	}
	s := *r.truth
	all := r.turns()
	s.Turns, s.Applied = all, r.applied
	for n := range all {
		if shown >= 0 && finalized(all[len(all)-n:]) >= shown {
			s.Turns = all[len(all)-n:]
			break
		}
	}
	s.Whole = r.whole && len(s.Turns) == len(all)
	return &s
}

func finalized(turns []*conversation.Turn) int {
	return len(slices.DeleteFunc(slices.Clone(turns),
		func(t *conversation.Turn) bool { return t.Status != conversation.Finalized }))
}
