package read

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

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
	w, err := r.Walk(ctx, sessionID, least...)
	if err != nil {
		return services.Reading{}, time.Time{}, err
	}
	w.to(moment{at.Position, at.Time})
	return w.reading(), w.at.time, nil
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

// Walk shows a session as AsOf does, at one place in the log after the other, but reads and folds it once. It is a
// reader of that session alone. Not safe for concurrent use.
type Walk struct {
	own *past
	// root is that of a branch, else nil; origins are the sessions of its segments.
	root     *past
	origins  []*past
	standing map[uint64]bool // the places of the summaries that stand today
	at       moment
}

// Walk begins a walk through a session, as soon as the log has the positions least.
func (r *Reader) Walk(ctx context.Context, sessionID string, least ...events.Position) (*Walk, error) {
	head, err := r.head(ctx, r.log.Partition(sessionID), least)
	if err != nil {
		return nil, err
	}
	w := &Walk{standing: map[uint64]bool{}}
	if w.own, err = r.past(ctx, sessionID, head); err != nil {
		return nil, err
	}
	if err := w.inherit(ctx, r); err != nil {
		return nil, err
	}
	today := w.own.today
	for _, m := range today.Standing() {
		w.standing[m.At] = true
	}
	return w, r.erasures.Session(ctx, today, w.own.head)
}

// inherit reads what a branch shares, and adds to the session of today what it shares today.
func (w *Walk) inherit(ctx context.Context, r *Reader) error {
	fork := w.own.today.Fork()
	if fork.Root == "" {
		return nil
	}
	read := func(id string) (*past, error) {
		head, err := r.log.Head(ctx, r.log.Partition(id))
		if err != nil {
			return nil, err
		}
		return r.past(ctx, id, head)
	}
	list := fork.Segments()
	today := make([]*session.State, len(list))
	for i, g := range list {
		o, err := read(g.SessionID)
		if err != nil {
			return err
		}
		w.origins, today[i] = append(w.origins, o), o.today
		if g.SessionID == fork.Root {
			w.root = o
		}
	}
	if w.root == nil {
		var err error
		if w.root, err = read(fork.Root); err != nil {
			return err
		}
	}
	if w.own.today.Identity = w.root.today.Identity; w.own.today.Erased == 0 {
		w.own.today.Inherit(list, today, math.MaxInt)
	}
	return nil
}

// Today returns the session as it is now. Nobody may change it.
func (w *Walk) Today() *session.State { return w.own.today }

// Partition returns that of the session.
func (w *Walk) Partition() int { return w.own.head.Partition }

// Events returns the session's own events of some sequences, as far as the log still has them.
func (w *Walk) Events(seqs []uint64) (found []events.Recorded) {
	for _, seq := range seqs {
		if n, has := slices.BinarySearchFunc(w.own.all, seq, func(e events.Recorded, seq uint64) int {
			return cmp.Compare(e.Position.Seq, seq)
		}); has {
			found = append(found, w.own.all[n])
		}
	}
	return found
}

// To goes on to a place of the session's partition. It never goes back.
func (w *Walk) To(seq uint64) {
	w.to(moment{position: &events.Position{Partition: w.Partition(), Seq: seq}})
}

func (w *Walk) to(m moment) {
	w.own.to(m)
	if n := w.own.next; m.position != nil && n > 0 {
		m.time = w.own.all[n-1].Time
	}
	for _, o := range w.origins {
		o.to(m)
	}
	if w.root != nil {
		w.root.to(m)
	}
	w.at = m
}

// Now returns when the session's last event was recorded, as of the place.
func (w *Walk) Now() time.Time { return w.at.time }

// Then returns a turn of the session itself as it was at the place, or nil.
func (w *Walk) Then(id uuid.UUID) *session.Turn { return w.own.then.Turn(id) }

// AsOf is Read.
func (w *Walk) AsOf(
	context.Context, string, services.AsOf, ...events.Position,
) (services.Reading, time.Time, error) {
	return w.reading(), w.Now(), nil
}

// Read returns the session as it was at the place.
func (w *Walk) Read(context.Context, services.Ask) (services.Reading, error) { return w.reading(), nil }

func (w *Walk) reading() services.Reading {
	state, now, own := w.own.at(w.at), w.own.today, w.own.head.Partition
	reading := services.Reading{
		State: state, Source: services.FromLog, Position: events.Position{Partition: own, Seq: state.Applied},
	}
	if w.root != nil && state.Fork().Root != "" {
		then, today := make([]*session.State, len(w.origins)), make([]*session.State, len(w.origins))
		for i, o := range w.origins {
			then[i], today[i] = o.at(w.at), o.today
			reading.Passed(o.head)
		}
		reading.Passed(w.root.head)
		state.Identity = w.root.then.Identity
		state.InheritThen(then, today)
	}
	state.Erased = now.Erased
	state.Remove(func(t *session.Turn) bool {
		t = now.Turn(t.ID)
		return t == nil || t.Status == session.Redacted
	})
	state.KeepSummaries(func(m session.Summary) bool { return w.standing[m.At] })
	// A turn whose events have left the log is known only by its tombstone, which came later than the place.
	for _, t := range now.Turns {
		_, partition, _ := now.Origin(t, own)
		opened := events.Recorded{
			Position: events.Position{Partition: partition, Seq: session.PlaceOf(t)}, Time: t.CreatedAt,
		}
		if t.Status == session.Redacted && w.at.holds(opened) {
			reading.RedactedLater = append(reading.RedactedLater, t)
		}
	}
	return reading
}

// past is a session as it was at a moment, which moves on, and as it is today.
type past struct {
	then, today *session.State
	head        events.Position
	all         []events.Recorded
	next        int // the first of all that is not folded into then
	// pruned are the turns of today of which something was taken out.
	pruned []*session.Turn
}

func (r *Reader) past(ctx context.Context, sessionID string, head events.Position) (*past, error) {
	p := &past{then: session.New(sessionID, r.cfg.Rules), today: session.New(sessionID, r.cfg.Rules), head: head}
	var err error
	p.all, err = r.tail(ctx, sessionID, 0, &p.head)
	for _, e := range p.all {
		p.today.Fold(e)
	}
	for _, t := range p.today.Turns {
		if t.PrunedAt() != 0 && (t.Status == session.Pending || t.Status == session.Finalized) {
			p.pruned = append(p.pruned, t)
		}
	}
	return p, err
}

// to folds what a later moment holds, too.
func (p *past) to(m moment) {
	for ; p.next < len(p.all) && m.holds(p.all[p.next]); p.next++ {
		p.then.Fold(p.all[p.next])
	}
}

// at returns the session as it was at the moment, with what later prunes have left of its turns. The turns' own events
// may be gone.
func (p *past) at(m moment) *session.State {
	state := p.then.CloneLast(math.MaxInt)
	upTo := state.Applied
	if m.position != nil && m.position.Partition == p.head.Partition {
		upTo = m.position.Seq
	}
	had := func(seq uint64, at time.Time) bool {
		return seq != 0 &&
			m.holds(events.Recorded{Position: events.Position{Partition: p.head.Partition, Seq: seq}, Time: at})
	}
	for _, t := range p.pruned {
		if t.PrunedAt() > upTo && had(t.Started, t.CreatedAt) {
			state.Put(t.Until(upTo, had(t.Final, t.FinalizedAt)))
		}
	}
	return state
}
