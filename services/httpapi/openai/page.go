package openai

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// page returns a page of a conversation's items. What it follows may be an item with an id of its client's own, which
// does not say where it is: if it is not among the newest, the whole conversation is read.
func (s *surface) page(ctx context.Context, id string, p services.Paging) (page []message.Item, more bool, err error) {
	ask := services.BesideAsk{Back: !p.Asc, Messages: p.Limit + 1}
	if at, looks := items.Locate(p.After); looks {
		ask.At, ask.Answer, ask.Message = at.Position, at.Answer, at.Message
	} else if p.After != "" {
		ask.Back, ask.Messages = true, 2*ask.Messages
	}
	turns, there, err := s.beside(ctx, id, ask)
	if err != nil {
		return nil, false, err
	}
	page, more, found := s.cut(begun(turns.Turns, p), p)
	if there && found && (more || !turns.More || p.Asc && ask.Back) {
		return page, more, nil
	}
	if turns, err = s.turnsOf(ctx, id); err != nil {
		return nil, false, err
	}
	if page, more, found = s.cut(begun(turns.Turns, p), p); !found {
		page, more, found = s.cut(inOrder(turns.Turns, p), p)
	}
	if !found {
		return nil, false, noAfter()
	}
	return page, more, nil
}

// inOrder returns turns in the order of a page.
func inOrder(turns []services.StandingTurn, p services.Paging) []services.StandingTurn {
	if p.Asc {
		return turns
	}
	turns = slices.Clone(turns)
	slices.Reverse(turns)
	return turns
}

// begun returns turns in the order of a page, from the one on that holds the item which the page follows, as far as
// that can be told without taking the turns apart; none if no turn seems to hold it.
func begun(turns []services.StandingTurn, p services.Paging) []services.StandingTurn {
	turns = inOrder(turns, p)
	if p.After == "" {
		return turns
	}
	at, looks := items.Locate(p.After)
	n := slices.IndexFunc(turns, func(t services.StandingTurn) bool {
		return looks && t.Partition == at.Position.Partition && t.BroughtBy(at.Position.Seq)
	})
	if n < 0 {
		n = slices.IndexFunc(turns, func(t services.StandingTurn) bool { return names(t, p.After) })
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

// turnsOf returns all turns of a conversation that are listed.
func (s *surface) turnsOf(ctx context.Context, id string) (services.TurnsBeside, error) {
	turns, found, err := s.beside(ctx, id, services.BesideAsk{Messages: math.MaxInt})
	if err == nil && !found {
		err = noConversation()
	}
	return turns, err
}

// beside returns turns of a conversation that stand side by side. It reports false if there are none at the place asked
// for.
func (s *surface) beside(
	ctx context.Context, id string, ask services.BesideAsk,
) (found services.TurnsBeside, ok bool, err error) {
	ask.SessionID = id
	found, ok, err = s.cfg.Lookup.TurnsBeside(ctx, ask)
	if errors.Is(err, decide.ErrSessionErased) {
		err = noConversation()
	}
	if ok {
		notePosition(ctx, found.Position)
	}
	return found, ok, err
}

// cut cuts a page out of turns in its order. It makes no more items than it has to. It reports whether the item that
// the page follows is among those of the turns.
func (s *surface) cut(turns []services.StandingTurn, p services.Paging) (page []message.Item, more, found bool) {
	found = p.After == ""
	for _, t := range turns {
		from := ""
		if !found {
			from = p.After
		}
		for i := range s.walk(t, from, items.Way{Back: !p.Asc}) {
			switch {
			case !found:
				found = i.ID() == p.After
			case len(page) == p.Limit:
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

// listed returns all items of a conversation.
func (s *surface) listed(ctx context.Context, id string) (all []message.Item, err error) {
	turns, err := s.turnsOf(ctx, id)
	for _, t := range turns.Turns {
		all = append(all, s.ids.OfTurn(t.SessionID, t.Partition, t.Turn)...)
	}
	return all, err
}
