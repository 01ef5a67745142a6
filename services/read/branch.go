package read

import (
	"context"
	"math"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
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
		list = r.segments(fork)
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
		whole, err := r.whole(ctx, ask, reading.Position)
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
	from := make([]*session.State, len(list))
	for i, g := range list {
		from[i] = found[g.SessionID]
	}
	reading.State.Inherit(list, from, most)
	return reading, nil
}

// missing returns how many shared turns a reading needs beside the branch's own; below 0 for none.
func missing(s *session.State, ask services.Ask) int {
	finalized, pending := 0, 0
	for _, t := range s.Turns {
		switch {
		case !s.Shown(t):
		case t.Status == session.Finalized:
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
func holdsAll(s *session.State) bool {
	left := s.Finalized + s.Pending
	for _, t := range s.Turns {
		if t.Status == session.Finalized || t.Status == session.Pending {
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
) (map[string]*session.State, error) {
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
	states, places := make([]*session.State, len(ids)), make([]events.Position, len(ids))
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
	out := map[string]*session.State{}
	for i, id := range ids {
		out[id] = states[i]
		reading.Passed(places[i])
	}
	return out, nil
}
