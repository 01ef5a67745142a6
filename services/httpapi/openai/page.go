package openai

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// page returns a page of a conversation's items. If neither its newest turns nor those around the item that the page
// follows are enough, the whole conversation is read.
func (s *surface) page(ctx context.Context, id string, p paging) (page []items.Item, more bool, err error) {
	// Each turn that is shown has an item, so the newest page is in so many turns.
	turns, err := s.turnsOf(ctx, id, p.limit+1)
	if err != nil {
		return nil, false, err
	}
	if turns.whole || !p.asc {
		if page, more, found := s.cut(turns.list, p); turns.whole && found || more {
			return page, more, nil
		}
	}
	if !turns.whole {
		ask := services.BesideAsk{Back: !p.asc, Messages: p.limit + 1, Known: turns.known}
		list, others, ok, err := s.beside(ctx, id, p.after, ask)
		if err != nil {
			return nil, false, err
		}
		if page, more, found := s.cut(list, p); ok && found && (more || !others) {
			return page, more, nil
		}
		if turns, err = s.turnsOf(ctx, id, allTurns); err != nil {
			return nil, false, err
		}
	}
	page, more, found := s.cut(turns.list, p)
	if !found {
		return nil, false, noAfter()
	}
	return page, more, nil
}

// standing is a turn with the session and the partition that it stands in.
type standing struct {
	*conversation.Turn

	session   string
	partition int
}

// someTurns are turns of a conversation that stand side by side, oldest first. whole: they are all. known is the
// sequence that they are as new as.
type someTurns struct {
	list  []standing
	known uint64
	whole bool
}

// turnsOf returns a conversation's last turns, at least so many if it has them.
func (s *surface) turnsOf(ctx context.Context, id string, turns int) (out someTurns, err error) {
	reading, list, whole, err := s.shownTurns(ctx, id, turns)
	for _, t := range list {
		session, partition, _ := reading.State.Origin(t, reading.Position.Partition)
		out.list = append(out.list, standing{t, session, partition})
	}
	out.known, out.whole = reading.Position.Seq, whole
	return out, err
}

// beside returns the turns of a conversation from the one of an item on, or before it; "" stands for the first item, or
// the last. more: there are others behind them in that direction. It reports false if it can't tell them.
func (s *surface) beside(
	ctx context.Context, id, item string, ask services.BesideAsk,
) (list []standing, more, ok bool, err error) {
	if s.cfg.Lookup == nil {
		return nil, false, false, nil
	}
	ask.SessionID = id
	if item != "" {
		at, looks := items.Locate(item)
		if !looks || !s.ids.Made(item, id) {
			return nil, false, false, nil
		}
		ask.At = at.Position
	}
	found, ok, err := s.cfg.Lookup.TurnsBeside(ctx, ask)
	if errors.Is(err, conversation.ErrSessionErased) {
		err = noConversation()
	}
	for _, t := range found.Turns {
		list = append(list, standing{t, id, found.Partition})
	}
	return list, found.More, ok, err
}

// cut cuts a page out of turns in their order. It makes no more items than it has to. It reports whether the item that
// the page follows is among those of the turns.
func (s *surface) cut(turns []standing, p paging) (page []items.Item, more, found bool) {
	at, _ := items.Locate(p.after)
	found = p.after == ""
	if !p.asc {
		turns = slices.Clone(turns)
		slices.Reverse(turns)
	}
	for _, t := range turns {
		way := items.Way{Back: !p.asc}
		if !found && s.ids.Made(p.after, t.session) {
			way.From = at
		}
		for i := range s.ids.Walk(t.session, t.partition, t.Turn, way) {
			switch {
			case !found:
				found = i.ID() == p.after
			case len(page) == p.limit:
				return page, true, true
			default:
				page = append(page, i)
			}
		}
	}
	return page, false, found
}

// cutPage cuts a page out of items in their order. It reports whether the item that the page follows is among them.
func cutPage(all []items.Item, p paging) (page []items.Item, more, found bool) {
	if !p.asc {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	if p.after != "" {
		at := indexOf(all, p.after)
		if at < 0 {
			return nil, false, false
		}
		all = all[at+1:]
	}
	n := min(p.limit, len(all))
	return all[:n], len(all) > n, true
}

// allTurns is more turns than any session has.
const allTurns = math.MaxInt32

// listed returns all items of a conversation.
func (s *surface) listed(ctx context.Context, id string) (all []items.Item, err error) {
	turns, err := s.turnsOf(ctx, id, allTurns)
	for _, t := range turns.list {
		all = append(all, s.ids.OfTurn(t.session, t.partition, t.Turn)...)
	}
	return all, err
}

// shownTurns returns a conversation's last turns, at least so many if it has them. It reports whether they are all.
func (s *surface) shownTurns(
	ctx context.Context, id string, turns int,
) (reading services.Reading, list []*conversation.Turn, whole bool, err error) {
	ask := services.Ask{SessionID: id, Shown: turns, Pending: true}
	reading, err = s.read(ctx, ask)
	branch := err == nil && reading.State.Fork().Root != ""
	if err == nil && !branch && reading.State.Boundary != reading.State.ResetAt { // a silence hides nothing here
		ask.AllTurns = true
		reading, err = s.read(ctx, ask)
	}
	if err != nil {
		return reading, nil, false, err
	}
	st := reading.State
	begin := st.ResetAt
	if branch {
		begin = st.Boundary // of all that the branch shares
	}
	for _, t := range st.Turns {
		if t.Place > begin && (t.Status == conversation.Pending || t.Status == conversation.Finalized) {
			list = append(list, t)
		}
	}
	whole = turns == allTurns || st.Whole || !branch && len(list) == st.ShownFinalized+st.ShownPending
	return reading, list, whole, nil
}
