package answer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
	"github.com/turnledger/turnledger/services/items"
)

// mostLookedUp bounds the ids of an input that are looked up to find the session which it is of, and mostBranches the
// branches of that session in which the history is looked for.
const mostLookedUp, mostBranches = 8, 8

// turns returns the turns of a reading for an alignment, as they were at a sequence; of each its newest version.
func (s *Service) turns(r services.Reading, until uint64) (out []align.Turn, of []*session.Turn) {
	for _, t := range r.State.Turns {
		sessionID, partition, inherited := r.State.Origin(t, r.Position.Partition)
		replaced := t.Status == session.Replaced || t.StatusBefore == session.Replaced
		if t.Place <= r.State.Boundary || replaced || !inherited && session.PlaceOf(t) > until {
			continue
		}
		chain, status := r.State.Chain(t), t.Status
		if status == session.Redacted {
			status = t.StatusBefore
		} else if !inherited && t.Started <= until { // else a correction took its place since
			t = t.Until(until, t.Final != 0 && t.Final <= until)
		}
		out, of = append(out, align.Turn{
			Items: s.cfg.IDs.OfTurn(sessionID, partition, t), Open: status == session.Pending,
			Lacks: t.Status == session.Redacted || t.Corrects() || t.PrunedAt() > 0,
			Has: func(id string) bool {
				at, looks := items.Locate(id)
				brought := func(t *session.Turn) bool { return t.BroughtBy(at.Position.Seq) }
				return looks && at.Position.Partition == partition && slices.ContainsFunc(chain, brought) &&
					s.cfg.IDs.Made(id, sessionID)
			},
		}), append(of, t)
	}
	return out, of
}

// recent reads the turns of a session whose items an input may have: the newest, or all where the input has ids, goes
// on behind an answer, or answers a call that none of the newest turns makes.
func (s *Service) recent(ctx context.Context, a ask, sessionID string) (services.Reading, error) {
	ask := services.Ask{SessionID: sessionID, Shown: 1, Pending: true, AllTurns: a.named() || a.hasTurns()}
	if a.mayHave() {
		ask.Shown = lookedBack
	}
	r, err := s.cfg.Sessions.Read(ctx, ask)
	if err != nil || ask.AllTurns || r.State.Whole || !a.mayHave() {
		return r, err
	}
	messages := items.AllAdded(a.Input)
	if s.placeIn(r, messages); len(withoutCall(messages)) > 0 {
		ask.AllTurns = true
		return s.cfg.Sessions.Read(ctx, ask)
	}
	return r, nil
}

// fresh returns the input without what the turns of a reading have already, as they were at a sequence.
func (s *Service) fresh(a ask, r services.Reading, until uint64) (out []message.Item) {
	if !a.mayHave() {
		return a.Input
	}
	turns, _ := s.turns(r, until)
	for _, n := range align.News(turns, align.Input{Items: a.Input, IDs: a.IDs}) {
		out = append(out, a.Input[n])
	}
	return out
}

// SessionOfItems implements services.Responder.
func (s *Service) SessionOfItems(ctx context.Context, ids []string, who services.Caller) (string, error) {
	looked := 0
	for _, id := range slices.Backward(ids) {
		at, looks := items.Locate(id)
		if !looks || at.Position.Partition >= s.cfg.Log.Partitions() || at.Position.Seq == 0 {
			continue
		}
		if looked++; looked > mostLookedUp {
			break
		}
		e, found, err := s.cfg.Log.At(ctx, at.Position)
		if err != nil {
			return "", err
		}
		if !found || !s.cfg.IDs.Made(id, e.SessionID) {
			continue
		}
		switch err := may(ctx, who, e.SessionID, errNoHistory); {
		case err == nil:
			return e.SessionID, nil
		case !errors.Is(err, errNoHistory):
			return "", err
		}
	}
	return "", nil
}

// errNoHistory: an input does not begin with a history that is here.
var errNoHistory = errors.New("the input has no history")

// shared returns the history that an input begins with, which a client sends again with ids that it has here: whole
// turns of a session, from the first on. They are shared and not copied, so that they stand once, and a deletion
// reaches them. Without such turns it fails with errNoHistory, and the rest is the input without what is gone.
func (s *Service) shared(ctx context.Context, a ask) (place, error) {
	none := place{rest: a.Input}
	sessionID, err := s.SessionOfItems(ctx, a.IDs, a.Caller)
	if err != nil || sessionID == "" {
		return none, cmp.Or(err, errNoHistory)
	}
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	if err != nil {
		return none, err
	}
	turns, of := s.turns(reading, ^uint64(0))
	best, h := sharedWith(a, reading, turns, of)
	if h == nil {
		none.rest = a.standing(turns)
		return none, errNoHistory
	}
	if best.Rest+1 == len(a.Input) || h.kind == events.KindResponse && !best.Diverges {
		return *h, nil
	}
	// Whoever went on with this history before did so in a branch.
	left := a.without(best.Gone) // a branch may begin before the place of what is gone
	branches := reading.State.Branches()
	slices.SortFunc(branches, func(x, y session.Branch) int { return cmp.Compare(y.MarkedAt, x.MarkedAt) })
	for _, b := range branches[:min(len(branches), mostBranches)] {
		reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: b.SessionID, AllTurns: true})
		if err != nil {
			return none, err
		}
		if !b.Made(reading.State) || reading.State.Erased != 0 {
			continue
		}
		sent := a
		turns, of := s.turns(reading, ^uint64(0))
		if !slices.ContainsFunc(turns, func(t align.Turn) bool { return t.Lacks }) {
			sent = left
		}
		if _, in := sharedWith(sent, reading, turns, of); in != nil && len(in.rest) < len(h.rest) {
			h = in
		}
	}
	return *h, nil
}

// without returns the request without some items of its input.
func (a ask) without(gone []int) ask {
	all, ids := a.Input, a.IDs
	a.Input, a.IDs = nil, nil
	for n, i := range all {
		if !slices.Contains(gone, n) {
			a.Input, a.IDs = append(a.Input, i), append(a.IDs, ids[n])
		}
	}
	return a
}

// sharedWith returns what an input shares with the turns of a session, and the history; nil if that is nothing.
func sharedWith(
	a ask, r services.Reading, turns []align.Turn, of []*session.Turn,
) (align.Shared, *place) {
	with := align.History(turns, align.Input{Items: a.Input, IDs: a.IDs})
	if with.First > 0 || r.State.Erased != 0 {
		return with, nil
	}
	for _, last := range slices.Backward(of[:with.Turns]) {
		if last.Status != session.Finalized {
			continue // a tombstone
		}
		_, partition, inherited := r.State.Origin(last, r.Position.Partition)
		h := &place{
			session: r.State.SessionID, kind: r.State.Description().Kind, turn: last.ID, inherited: inherited,
			end: events.Position{Partition: partition, Seq: last.Last()}, rest: a.Input[with.Rest:],
		}
		if inherited {
			h.end = r.Position
		}
		return with, h
	}
	return with, nil
}

// standing returns the input without items that the turns of a session had, by their ids, and that are gone.
func (a ask) standing(turns []align.Turn) (out []message.Item) {
	for n, i := range a.Input {
		gone := func(t align.Turn) bool {
			is := func(i message.Item) bool { return i.ID() == a.IDs[n] }
			return t.Lacks && a.IDs[n] != "" && t.Has(a.IDs[n]) && !slices.ContainsFunc(t.Items, is)
		}
		if !slices.ContainsFunc(turns, gone) {
			out = append(out, i)
		}
	}
	return out
}
