package recenttest

import (
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
)

// reference says what a view must hold of one session. It folds all of it and only
// remembers from which place on a view would still have the turns.
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

// before folds what a view that begins later never sees.
func (r *reference) before(e events.Recorded) { r.truth.Fold(e) }

// parked folds what a view could not apply.
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
	if r.now.Sub(r.truth.LastActive) > r.limits.TTL && r.now.Sub(r.truth.ErasedAt) > r.limits.TTL {
		r.held = false
		return
	}
	if !r.held {
		r.held, r.floor, r.whole = true, e.Position.Seq, !found && r.truth.Found()
	}
	r.applied = e.Position.Seq
	switch kind {
	case conversation.Corrected, conversation.TurnGone:
		r.whole = false
	case conversation.Started:
		if turns := r.turns(); len(turns) > r.limits.MaxTurns {
			r.floor, r.whole = turns[len(turns)-r.limits.MaxTurns].Place, false
		}
	case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Answered, conversation.Linked,
		conversation.Reset, conversation.Erased, conversation.Refused, conversation.Noted:
	}
}

// restored takes the whole session from the log.
func (r *reference) restored() {
	r.held = r.now.Sub(r.truth.LastActive) <= r.limits.TTL || r.now.Sub(r.truth.ErasedAt) <= r.limits.TTL
	r.floor, r.applied = 0, r.truth.Applied
	turns := r.turns()
	r.whole = len(turns) == len(r.truth.Turns)
	if len(turns) > r.limits.MaxTurns {
		r.floor, r.whole = turns[len(turns)-r.limits.MaxTurns].Place, false
	}
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

// load returns what a Load must return, nil where it must return nothing.
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
