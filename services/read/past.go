package read

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// AsOf returns a session as it was at a place in the log, without the turns that were redacted or erased since, and the
// time for which that was. It waits until the log has the place and the positions least. A place in another partition
// is neither before nor after the session's events.
func (r *Reader) AsOf(
	ctx context.Context, sessionID string, at services.AsOf, least ...events.Position,
) (services.Reading, time.Time, error) {
	partition := r.log.Partition(sessionID)
	if p := at.Position; p != nil {
		if p.Partition != partition {
			return services.Reading{}, time.Time{}, &decide.Invalid{
				Field: "as_of.position",
				Why:   "is of another partition than the session's: take a position that one of its turns has",
			}
		}
		least = append(slices.Clone(least), *p)
	}
	head, err := r.head(ctx, partition, least)
	if err != nil {
		return services.Reading{}, time.Time{}, err
	}
	m := moment{at.Position, at.Time}
	p, last, err := r.past(ctx, sessionID, m, &head)
	if err != nil {
		return services.Reading{}, time.Time{}, err
	}
	if at.Position != nil {
		m.time = last
	}
	reading := services.Reading{
		State: p.then, Source: services.FromLog,
		Position: events.Position{Partition: head.Partition, Seq: p.then.Applied},
	}
	if err := p.inherit(ctx, r, m, &reading); err != nil {
		return services.Reading{}, time.Time{}, err
	}
	if err := r.erasures.Session(ctx, p.today, head); err != nil {
		return services.Reading{}, time.Time{}, err
	}
	p.then.Erased = p.today.Erased
	p.then.Remove(func(t *session.Turn) bool {
		now := p.today.Turn(t.ID)
		return now == nil || now.Status == session.Redacted
	})
	standing := p.today.Standing()
	p.then.KeepSummaries(func(m session.Summary) bool {
		return slices.ContainsFunc(standing, func(now session.Summary) bool { return now.At == m.At })
	})
	// A turn whose events have left the log is known only by its tombstone, which came later than the place.
	for _, t := range p.today.Turns {
		_, partition, _ := p.today.Origin(t, head.Partition)
		opened := events.Recorded{
			Position: events.Position{Partition: partition, Seq: session.PlaceOf(t)}, Time: t.CreatedAt,
		}
		if t.Status == session.Redacted && m.holds(opened) {
			reading.RedactedLater = append(reading.RedactedLater, t)
		}
	}
	return reading, m.time, nil
}

// moment says which events stand at a place in the log: in the partition of position those up to it, in every other, or
// where there is none, those that were recorded up to a time.
type moment struct {
	position *events.Position
	time     time.Time
}

func (m moment) holds(e events.Recorded) bool {
	if m.position != nil && m.position.Partition == e.Position.Partition {
		return e.Position.Seq <= m.position.Seq
	}
	return !e.Time.After(m.time)
}

// past is a session as it was at a moment and as it is today.
type past struct{ then, today *session.State }

// past folds a session twice, and returns the time of its last event at the moment.
func (r *Reader) past(ctx context.Context, sessionID string, m moment, head *events.Position) (past, time.Time, error) {
	p := past{session.New(sessionID, r.cfg.Rules), session.New(sessionID, r.cfg.Rules)}
	var last time.Time
	all, err := r.tail(ctx, sessionID, 0, head)
	for _, e := range all {
		p.today.Fold(e)
		if m.holds(e) {
			p.then.Fold(e)
			if e.Time.After(last) {
				last = e.Time
			}
		}
	}
	p.prune(m, head.Partition)
	return p, last, err
}

// prune leaves of the turns of the past what later prunes have left of them. The turns' own events may be gone.
func (p past) prune(m moment, partition int) {
	upTo := p.then.Applied
	if m.position != nil && m.position.Partition == partition {
		upTo = m.position.Seq
	}
	had := func(seq uint64, at time.Time) bool {
		return seq != 0 && m.holds(events.Recorded{Position: events.Position{Partition: partition, Seq: seq}, Time: at})
	}
	for _, t := range p.today.Turns {
		live := t.Status == session.Pending || t.Status == session.Finalized
		if live && t.PrunedAt() > upTo && had(t.Started, t.CreatedAt) {
			p.then.Put(t.Until(upTo, had(t.Final, t.FinalizedAt)))
		}
	}
}

// inherit adds to the past of a branch what it shared at the moment, and what it shares of that today.
func (p past) inherit(ctx context.Context, r *Reader, m moment, reading *services.Reading) error {
	fork := p.then.Fork()
	if fork.Root == "" {
		return nil
	}
	list := fork.Segments()
	then, today := make([]*session.State, len(list)), make([]*session.State, len(list))
	root := func(s past) { p.then.Identity, p.today.Identity = s.then.Identity, s.today.Identity }
	for i, g := range list {
		s, err := r.pastOrigin(ctx, g.SessionID, m, reading)
		if err != nil {
			return err
		}
		then[i], today[i] = s.then, s.today
		if g.SessionID == fork.Root {
			root(s)
		}
	}
	if !slices.ContainsFunc(list, func(g events.Segment) bool { return g.SessionID == fork.Root }) {
		s, err := r.pastOrigin(ctx, fork.Root, m, reading)
		if err != nil {
			return err
		}
		root(s)
	}
	if p.today.Erased == 0 {
		p.today.Inherit(list, today, math.MaxInt)
	}
	p.then.InheritThen(then, today, math.MaxInt)
	return nil
}

func (r *Reader) pastOrigin(ctx context.Context, id string, m moment, reading *services.Reading) (past, error) {
	head, err := r.log.Head(ctx, r.log.Partition(id))
	if err != nil {
		return past{}, err
	}
	s, _, err := r.past(ctx, id, m, &head)
	reading.Passed(head)
	return s, err
}
