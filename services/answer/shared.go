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

// mostLookedUp bounds the places of an input's ids that are looked up to find the session which it is of, and
// mostBranches the sessions, and the branches of the last, in which the history is looked for.
const mostLookedUp, mostBranches = 8, 8

// turns returns the turns of a reading for an alignment, as they were at a sequence; of each its newest version.
// Those up to a boundary are left out.
func (s *Service) turns(r services.Reading, until, boundary uint64) (out []align.Turn, of []*session.Turn) {
	for _, t := range r.State.Turns {
		sessionID, partition, inherited := r.State.Origin(t, r.Position.Partition)
		replaced := t.Status == session.Replaced || t.StatusBefore == session.Replaced
		if t.Place <= boundary || replaced || !inherited && session.PlaceOf(t) > until {
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
	turns, _ := s.turns(r, until, r.State.Boundary)
	for _, n := range align.News(turns, align.Input{Items: a.Input, IDs: a.IDs}) {
		out = append(out, a.Input[n])
	}
	return out
}

// SessionOfItems implements services.Responder.
func (s *Service) SessionOfItems(ctx context.Context, ids []string, who services.Caller) (string, error) {
	looked := map[events.Position]bool{}
	for _, id := range slices.Backward(ids) {
		at, looks := items.Locate(id)
		if !looks || at.Position.Partition >= s.cfg.Log.Partitions() || at.Position.Seq == 0 || looked[at.Position] {
			continue
		}
		if looked[at.Position] = true; len(looked) > mostLookedUp {
			break
		}
		e, found, err := s.cfg.Log.At(ctx, at.Position)
		if err != nil {
			return "", err
		}
		sessionID := e.SessionID
		if !found { // it may have left the log
			if sessionID, err = s.cfg.SessionOf(ctx, items.SessionOf(id)); err != nil {
				return "", err
			}
		}
		if !s.cfg.IDs.Made(id, sessionID) {
			continue
		}
		switch err := may(ctx, who, sessionID, errNoHistory); {
		case err == nil:
			return sessionID, nil
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
// reaches them. Without such turns it fails with errNoHistory. What is gone is no part of the rest.
func (s *Service) shared(ctx context.Context, a ask) (place, error) {
	none := place{rest: a.Input}
	all, err := s.historiesOf(ctx, a)
	if err != nil || len(all) == 0 {
		return none, cmp.Or(err, errNoHistory)
	}
	gone := slices.Clone(all[0].with.Gone)
	for _, h := range all {
		gone = append(gone, h.gone...)
	}
	best, diverges := a.sharedWith(all[0], gone)
	if best == nil {
		none.rest = a.at(a.without(gone)).Items
		return none, errNoHistory
	}
	if len(best.rest) == 1 || best.kind == events.KindResponse && !diverges {
		return *best, nil
	}
	// Whoever went on with this history before did so in a branch.
	branches := all[0].State.Branches()
	slices.SortFunc(branches, func(x, y session.Branch) int { return cmp.Compare(y.MarkedAt, x.MarkedAt) })
	for _, b := range branches[:min(len(branches), mostBranches)] {
		h, err := s.historyOf(ctx, a, b.SessionID)
		if err != nil {
			return none, err
		}
		if !b.Made(h.State) {
			continue
		}
		if in, _ := a.sharedWith(h, gone); in != nil && len(in.rest) < len(best.rest) {
			best = in
		}
	}
	return *best, nil
}

// history is a session beside an input: with is what they share, and gone the places of what it had, by ids.
type history struct {
	services.Reading

	turns []align.Turn
	of    []*session.Turn
	with  align.Shared
	gone  []int
}

func (s *Service) historyOf(ctx context.Context, a ask, sessionID string) (h history, err error) {
	h.Reading, err = s.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	if err != nil {
		return h, err
	}
	in := align.Input{Items: a.Input, IDs: a.IDs}
	h.turns, h.of = s.turns(h.Reading, ^uint64(0), h.State.Boundary)
	h.with = align.History(h.turns, in)
	h.gone = align.Gone(h.turns, in)
	return h, nil
}

// historiesOf returns the session that the last id of an input leads to, and then those that the other ids lead to:
// an item that is gone may be of a session that the history was taken from.
func (s *Service) historiesOf(ctx context.Context, a ask) (all []history, err error) {
	ids := slices.Clone(a.IDs)
	for len(all) < mostBranches {
		sessionID, err := s.SessionOfItems(ctx, ids, a.Caller)
		if err != nil || sessionID == "" {
			return all, err
		}
		h, err := s.historyOf(ctx, a, sessionID)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
		ids = slices.DeleteFunc(ids, func(id string) bool {
			has := func(t align.Turn) bool { return t.Has(id) }
			return id == "" || s.cfg.IDs.Made(id, sessionID) || slices.ContainsFunc(h.turns, has)
		})
	}
	return all, nil
}

// without returns the places of the items of the input, without some.
func (a ask) without(gone []int) (places []int) {
	for n := range a.Input {
		if !slices.Contains(gone, n) {
			places = append(places, n)
		}
	}
	return places
}

// at returns the items at some places of the input.
func (a ask) at(places []int) (in align.Input) {
	for _, n := range places {
		in.Items, in.IDs = append(in.Items, a.Input[n]), append(in.IDs, a.IDs[n])
	}
	return in
}

// sharedWith returns what an input shares with a session, as it came or without what is gone from others: a branch may
// begin before the place of that. It is nil if that is nothing. diverges: the session went on otherwise.
func (a ask) sharedWith(h history, gone []int) (best *place, diverges bool) {
	shares := func(with align.Shared, sent []int) {
		at := h.behind(with)
		if at == nil {
			return
		}
		standing := slices.DeleteFunc(sent[with.Rest:], func(n int) bool { return slices.Contains(gone, n) })
		if at.rest = a.at(standing).Items; best == nil || len(at.rest) < len(best.rest) {
			best, diverges = at, with.Diverges
		}
	}
	shares(h.with, a.without(nil))
	others := slices.DeleteFunc(slices.Clone(gone), func(n int) bool {
		return slices.Contains(h.gone, n) || slices.Contains(h.with.Gone, n)
	})
	if len(others) > 0 {
		left := a.without(others)
		shares(align.History(h.turns, a.at(left)), left)
	}
	return best, diverges
}

// behind returns the place behind the turns that an input shares with a session, or nil. Where only tombstones are
// shared, it is that in a session to which only responses add.
func (h history) behind(with align.Shared) *place {
	state := h.State
	if with.First > 0 || state.Erased != 0 {
		return nil
	}
	at := &place{session: state.SessionID, kind: state.Description().Kind}
	for _, last := range slices.Backward(h.of[:with.Turns]) {
		_, partition, inherited := state.Origin(last, h.Position.Partition)
		if !inherited {
			at.after = max(at.after, last.Last())
		}
		if last.Status != session.Finalized {
			continue // a tombstone
		}
		at.turn, at.inherited, at.end = last.ID, inherited, events.Position{Partition: partition, Seq: last.Last()}
		if inherited {
			at.end = h.Position
		}
		return at
	}
	if at.after == 0 || at.kind != events.KindResponse {
		return nil
	}
	return at
}
