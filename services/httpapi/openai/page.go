package openai

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// page returns a page of a conversation's items. If neither its newest turns nor those around the item that the page
// follows are enough, the whole conversation is read.
func (s *surface) page(ctx context.Context, id string, p paging) (page []message.Item, more bool, err error) {
	// Each turn that is shown has an item, so the newest page is in so many turns.
	turns, err := s.turnsOf(ctx, id, p.limit+1)
	if err != nil {
		return nil, false, err
	}
	parts := slices.ContainsFunc(turns.list, isLong) && s.cfg.Lookup != nil
	if !parts && (turns.whole || !p.asc) {
		if page, more, found := s.cut(begun(turns.list, p), p); turns.whole && found || more {
			return page, more, nil
		}
	}
	if parts || !turns.whole {
		ask := services.BesideAsk{Back: !p.asc, Messages: p.limit + 1, Known: turns.known}
		beside, ok, err := s.beside(ctx, id, p.after, ask)
		if err != nil {
			return nil, false, err
		}
		if page, more, found := s.cut(inOrder(beside.Turns, p), p); ok && found && (more || !beside.More) {
			return page, more, nil
		}
	}
	if !turns.whole {
		if turns, err = s.turnsOf(ctx, id, allTurns); err != nil {
			return nil, false, err
		}
	}
	page, more, found := s.cut(begun(turns.list, p), p)
	if !found {
		page, more, found = s.cut(inOrder(turns.list, p), p)
	}
	if !found {
		return nil, false, noAfter()
	}
	return page, more, nil
}

// inOrder returns turns in the order of a page.
func inOrder(turns []services.StandingTurn, p paging) []services.StandingTurn {
	if p.asc {
		return turns
	}
	turns = slices.Clone(turns)
	slices.Reverse(turns)
	return turns
}

// begun returns turns in the order of a page, from the one on that holds the item which the page follows, as far as
// that can be told without taking the turns apart; none if no turn seems to hold it.
func begun(turns []services.StandingTurn, p paging) []services.StandingTurn {
	turns = inOrder(turns, p)
	if p.after == "" {
		return turns
	}
	at, looks := items.Locate(p.after)
	n := slices.IndexFunc(turns, func(t services.StandingTurn) bool {
		return looks && t.Partition == at.Position.Partition && t.BroughtBy(at.Position.Seq)
	})
	if n < 0 {
		n = slices.IndexFunc(turns, func(t services.StandingTurn) bool { return names(t, p.after) })
	}
	if n < 0 {
		return nil
	}
	return turns[n:]
}

// names reports whether a turn's messages hold the letters of an id.
func names(t services.StandingTurn, id string) bool {
	return t.Question != nil && bytes.Contains(t.Question.QuestionMessages, []byte(id)) ||
		t.Answer != nil && bytes.Contains(t.Answer.AnswerMessages, []byte(id))
}

// isLong reports whether a turn has so much text that to take it apart costs more than to read a part of it.
func isLong(t services.StandingTurn) bool {
	n := 0
	if t.Question != nil {
		n += len(t.Question.QuestionMessages)
	}
	if t.Answer != nil {
		n += len(t.Answer.AnswerMessages)
	}
	return n > longTurn
}

const longTurn = 128 << 10

// someTurns are turns of a conversation that stand side by side, oldest first. whole: they are all. known is the
// sequence that they are as new as.
type someTurns struct {
	list  []services.StandingTurn
	known uint64
	whole bool
}

// turnsOf returns a conversation's last turns, at least so many if it has them.
func (s *surface) turnsOf(ctx context.Context, id string, turns int) (out someTurns, err error) {
	reading, list, whole, err := s.shownTurns(ctx, id, turns)
	for _, t := range list {
		session, partition, _ := reading.State.Origin(t, reading.Position.Partition)
		out.list = append(out.list, services.StandingTurn{Turn: t, SessionID: session, Partition: partition})
	}
	out.known, out.whole = reading.Position.Seq, whole
	return out, err
}

// beside returns the turns of a conversation from the one of an item on, or up to it; "" stands for the first item, or
// the last. It reports false if it can't tell them.
func (s *surface) beside(
	ctx context.Context, id, item string, ask services.BesideAsk,
) (found services.TurnsBeside, ok bool, err error) {
	if s.cfg.Lookup == nil {
		return found, false, nil
	}
	ask.SessionID = id
	if item != "" {
		at, looks := items.Locate(item)
		if !looks {
			return found, false, nil
		}
		ask.At, ask.Answer, ask.Message = at.Position, at.Answer, at.Message
	}
	found, ok, err = s.cfg.Lookup.TurnsBeside(ctx, ask)
	if errors.Is(err, conversation.ErrSessionErased) {
		err = noConversation()
	}
	return found, ok, err
}

// cut cuts a page out of turns in its order. It makes no more items than it has to. It reports whether the item that
// the page follows is among those of the turns.
func (s *surface) cut(turns []services.StandingTurn, p paging) (page []message.Item, more, found bool) {
	found = p.after == ""
	for _, t := range turns {
		from := ""
		if !found {
			from = p.after
		}
		for i := range s.walk(t, from, items.Way{Back: !p.asc}) {
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

// walk yields the items of a turn. If from is the id of one of them, the walk begins with its message, as far as the id
// tells.
func (s *surface) walk(t services.StandingTurn, from string, way items.Way) iter.Seq[message.Item] {
	way.Skipped = t.Skipped
	if s.ids.Made(from, t.SessionID) {
		way.From, _ = items.Locate(from)
	}
	return s.ids.Walk(t.SessionID, t.Partition, t.Turn, way)
}

// allTurns is more turns than any session has.
const allTurns = math.MaxInt32

// listed returns all items of a conversation.
func (s *surface) listed(ctx context.Context, id string) (all []message.Item, err error) {
	turns, err := s.turnsOf(ctx, id, allTurns)
	for _, t := range turns.list {
		all = append(all, s.ids.OfTurn(t.SessionID, t.Partition, t.Turn)...)
	}
	return all, err
}

// shownTurns returns a conversation's last turns, as many as are listed at once if it has them. It reports whether they
// are all.
func (s *surface) shownTurns(
	ctx context.Context, id string, turns int,
) (reading services.Reading, list []*conversation.Turn, whole bool, err error) {
	reading, err = s.read(ctx, services.Ask{
		SessionID: id, Shown: turns, Pending: true, AllTurns: turns == allTurns,
	})
	if err != nil {
		return reading, nil, false, err
	}
	st := reading.State
	branch := st.Fork().Root != ""
	begin := st.ResetAt // a silence hides nothing here
	if branch {
		begin = st.Boundary // of all that the branch shares
	}
	for _, t := range st.Turns {
		if t.Place > begin && (t.Status == conversation.Pending || t.Status == conversation.Finalized) {
			list = append(list, t)
		}
	}
	counted := !branch && st.Boundary == st.ResetAt && len(list) == st.ShownFinalized+st.ShownPending
	return reading, list, turns == allTurns || st.Whole || counted, nil
}
