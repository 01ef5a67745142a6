package contextbuilder

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// compose adds to the reading of a branch the turns that it shares, and sets the identity of its root. It takes no more
// shared turns than the reading was asked for.
func (r *Reader) compose(ctx context.Context, ask services.Ask, reading services.Reading) (services.Reading, error) {
	fork := reading.State.Fork()
	if fork.Root == "" || reading.State.Erased != 0 {
		return reading, nil
	}
	own := reading.State.Identity
	var list []events.Segment
	if !ask.Own {
		list = r.origins.segments(fork)
	}
	var end *events.Position
	if ask.KnownSeq == 0 {
		end = &reading.Position
	}
	found, err := r.originsOf(ctx, &reading, end, fork.Root, list)
	if err != nil {
		return reading, err
	}
	reading.State.Identity = found[fork.Root].Lends()
	if ask.Own {
		return reading, nil
	}
	most := missing(reading.State, ask)
	if most > 0 && !holdsAll(reading.State) && reading.Source != services.FromLog {
		whole, err := r.fromLog(ctx, ask, reading.Position)
		if err != nil {
			return reading, err
		}
		whole.Others, whole.State.Identity = reading.Others, own
		ask.AllTurns = true
		return r.compose(ctx, ask, whole)
	}
	if ask.AllTurns || reading.Source == services.FromLog {
		most = math.MaxInt
	}
	from := make([]*conversation.State, len(list))
	for i, g := range list {
		from[i] = found[g.SessionID]
	}
	reading.State.Inherit(list, from, most)
	return reading, nil
}

// missing returns how many shared turns a reading needs beside the branch's own; below 0 for none.
func missing(s *conversation.State, ask services.Ask) int {
	finalized, pending := 0, 0
	for _, t := range s.Turns {
		switch {
		case !s.Shown(t):
		case t.Status == conversation.Finalized:
			finalized++
		case ask.Pending:
			pending++
		}
	}
	least := -1
	if finalized == 0 {
		least = 1
	}
	if n := ask.Shown - finalized - pending; n > 0 {
		return max(n, least)
	}
	return least
}

// holdsAll reports whether a state holds all its turns but tombstones and replaced ones.
func holdsAll(s *conversation.State) bool {
	left := s.Finalized + s.Pending
	for _, t := range s.Turns {
		if t.Status == conversation.Finalized || t.Status == conversation.Pending {
			left--
		}
	}
	return s.Whole || left == 0
}

// originsOf returns the root of a branch and the sessions of its segments, each with all its turns, as new as all that
// was acknowledged before the call; end, where set, is a position that has all of that of its partition. It asks for
// all at once, and notes their partitions in the reading. Nobody may change the states.
func (r *Reader) originsOf(
	ctx context.Context, reading *services.Reading, end *events.Position, root string, list []events.Segment,
) (map[string]*conversation.State, error) {
	ids := []string{root}
	for _, g := range list {
		if g.SessionID != root {
			ids = append(ids, g.SessionID)
		}
	}
	heads := map[int]func() (events.Position, error){}
	for _, id := range ids {
		p := r.log.Partition(id)
		switch {
		case heads[p] != nil:
		case end != nil && end.Partition == p:
			heads[p] = func() (events.Position, error) { return *end, nil }
		default:
			heads[p] = sync.OnceValues(func() (events.Position, error) { return r.log.Head(ctx, p) })
		}
	}
	states, places := make([]*conversation.State, len(ids)), make([]events.Position, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	for i, id := range ids {
		group.Go(func() (err error) {
			states[i], places[i], err = r.origin(ctx, id, heads[r.log.Partition(id)])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := map[string]*conversation.State{}
	for i, id := range ids {
		out[id] = states[i]
		reading.Passed(places[i])
	}
	return out, nil
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
type past struct{ then, today *conversation.State }

// past folds a session twice, and returns the time of its last event at the moment.
func (r *Reader) past(ctx context.Context, sessionID string, m moment, head *events.Position) (past, time.Time, error) {
	p := past{conversation.New(sessionID, r.cfg.Rules), conversation.New(sessionID, r.cfg.Rules)}
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
		live := t.Status == conversation.Pending || t.Status == conversation.Finalized
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
	then, today := make([]*conversation.State, len(list)), make([]*conversation.State, len(list))
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
	p.then.InheritThen(then, today)
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

// Question returns the question of a turn, also of one that a branch shares.
func (r *Reader) Question(ctx context.Context, sessionID string, turn uuid.UUID) (*events.Question, error) {
	reading, err := r.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	if err != nil {
		return nil, err
	}
	t := reading.State.Turn(turn)
	if t == nil {
		return nil, conversation.ErrTurnNotFound
	}
	chain := reading.State.Chain(t)
	if t = chain[len(chain)-1]; t.Question == nil {
		return nil, conversation.ErrTurnRedacted
	}
	return t.Question, nil
}
