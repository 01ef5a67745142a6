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
// mostHistories the sessions in which the history is looked for.
const mostLookedUp, mostHistories = 8, 8

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
	in := align.Input{Items: a.Input, IDs: a.IDs}
	all, gone, err := s.historiesOf(ctx, a, in)
	if err != nil || len(all) == 0 {
		return none, cmp.Or(err, errNoHistory)
	}
	h := all[0]
	if left := h.compared(in.Without(gone)); len(gone) > 0 && left.with.Stands() > h.with.Stands() {
		h = left // a branch may begin before the place of what is gone
	}
	at := h.behind()
	for next := &h; at != nil && next != nil; {
		other := h.with.Rest+1 < len(h.in.Items) && (at.kind != events.KindResponse || h.with.Diverges)
		if next, err = s.onward(ctx, &h, other); err != nil {
			return none, err
		}
		if next == nil {
			break
		}
		there := next.behind()
		if there == nil {
			break
		}
		h, at = *next, there
	}
	if at == nil {
		none.rest = in.Without(gone).Items
		return none, errNoHistory
	}
	fork := h.fork
	for at.fork = &fork; h.with.Rest < len(h.in.Items); h.with.Rest++ {
		if n := h.with.Rest; !slices.Contains(gone, h.in.CameAt(n)) {
			at.rest = append(at.rest, h.in.Items[n])
		}
	}
	return *at, nil
}

// historiesOf returns the session that the last id of an input leads to, and then those that the other ids lead to:
// an item that is gone may be of a session that the history was taken from. It returns the places of all that is gone.
func (s *Service) historiesOf(ctx context.Context, a ask, in align.Input) (all []history, gone []int, err error) {
	ids := slices.Clone(a.IDs)
	for len(all) < mostHistories {
		sessionID, err := s.SessionOfItems(ctx, ids, a.Caller)
		if err != nil || sessionID == "" {
			return all, gone, err
		}
		h, err := s.historyOf(ctx, sessionID, in, false)
		if err != nil {
			return nil, nil, err
		}
		all, gone = append(all, h), append(gone, align.Gone(h.turns, in)...)
		ids = slices.DeleteFunc(ids, func(id string) bool {
			has := func(t align.Turn) bool { return t.Has(id) }
			return id == "" || s.cfg.IDs.Made(id, sessionID) || slices.ContainsFunc(h.turns, has)
		})
	}
	return all, gone, nil
}

// behind returns the place behind the turns that the input shares with the session, or nil. Where only tombstones are
// shared, it is that in a session to which only responses add.
func (h history) behind() *place {
	state := h.State
	if h.with.First > 0 || state.Erased != 0 {
		return nil
	}
	at := &place{session: state.SessionID, kind: state.Description().Kind}
	if h.with.Turns == len(h.of) { // an earlier turn may have been corrected since
		at.after = state.LastText()
	}
	for _, last := range slices.Backward(h.of[:h.with.Turns]) {
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
