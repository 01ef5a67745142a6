package answer

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// cut cuts a page out of items.
func cut(all []message.Item, p services.Paging) services.ItemPage {
	if !p.Asc {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	if p.After != "" {
		at := indexOf(all, p.After)
		if at < 0 {
			return services.ItemPage{}
		}
		all = all[at+1:]
	}
	n := min(p.Limit, len(all))
	return services.ItemPage{Items: all[:n], More: len(all) > n, Found: true}
}

func indexOf(all []message.Item, id string) int {
	return slices.IndexFunc(all, func(i message.Item) bool { return i.ID() == id })
}

// InputItems implements services.Responder: a response was asked with its history as it was then, without what was
// deleted since, and with its own input. The whole history is read only if what is around the page has changed since.
func (s *Service) InputItems(
	ctx context.Context, id string, who services.Caller, p services.Paging,
) (services.ItemPage, error) {
	st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
	if err != nil {
		return services.ItemPage{}, err
	}
	if found.Head.Boundary == found.Head.ResetAt { // else what a page of the session lists is not what prompts show
		part, err := s.givenAround(ctx, st, p)
		if err != nil {
			return services.ItemPage{}, err
		}
		if page := cut(part.items, p); page.Found && (page.More || part.end) {
			return page, nil
		}
	}
	all, err := s.given(ctx, st)
	if err != nil {
		return services.ItemPage{}, err
	}
	return cut(all, p), nil
}

// part is a part of what a response was asked with. end: nothing comes behind it, in the order of the page.
type part struct {
	items []message.Item
	end   bool
}

// givenAround returns the part that a page is cut from; an empty one if only the whole history tells.
func (s *Service) givenAround(ctx context.Context, st step, p services.Paging) (part, error) {
	own, err := s.beside(ctx, services.BesideAsk{SessionID: st.session, At: st.Position})
	if err != nil || len(own.Turns) != 1 {
		return part{}, err
	}
	t := own.Turns[0]
	given, err := s.ownInput(ctx, st, t.Turn, t.Partition)
	if err != nil {
		return part{}, err
	}
	ask := services.BesideAsk{SessionID: st.session, Back: !p.Asc, Messages: p.Limit + 1}
	switch mine := indexOf(given, p.After) >= 0; {
	case mine && p.Asc:
		return part{given, true}, nil
	case mine, p.After == "" && !p.Asc:
		ask.At = events.Position{Partition: t.Partition, Seq: t.Started}
	case p.After != "":
		at, looks := items.Locate(p.After)
		if !looks {
			return part{}, nil
		}
		ask.At, ask.Answer, ask.Message = at.Position, at.Answer, at.Message
	}
	around, err := s.beside(ctx, ask)
	if err != nil {
		return part{}, err
	}
	return s.behindTurns(st, around, given, p), nil
}

// behindTurns returns the items of turns before a step, and of its own input if the turns reach it; an empty part
// if one of the turns has changed since.
func (s *Service) behindTurns(
	st step, around services.TurnsBeside, given []message.Item, p services.Paging,
) (out part) {
	out.end = !p.Asc && !around.More
	for _, t := range around.Turns {
		if t.ID == st.TurnID {
			return part{append(out.items, given...), out.end || p.Asc}
		}
		if t.SessionID == st.session && t.Last() > st.Position.Seq {
			return part{}
		}
		way := items.Way{Skipped: t.Skipped}
		out.items = slices.AppendSeq(out.items, s.cfg.IDs.Walk(t.SessionID, t.Partition, t.Turn, way))
	}
	return out
}

// beside returns turns that stand side by side; none if only the whole session tells.
func (s *Service) beside(ctx context.Context, ask services.BesideAsk) (services.TurnsBeside, error) {
	found, ok, err := s.cfg.Lookup.TurnsBeside(ctx, ask)
	switch {
	case isGone(err):
		err = services.ErrNoResponse
	case !ok:
		found = services.TurnsBeside{More: true}
	}
	return found, err
}

// given returns all that a response was asked with, oldest first.
func (s *Service) given(ctx context.Context, st step) (out []message.Item, err error) {
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: st.session, AllTurns: true})
	if err != nil {
		return nil, err
	}
	state := reading.State
	t := state.Turn(st.TurnID)
	if !shown(t) {
		return nil, services.ErrNoResponse
	}
	for _, before := range state.Turns {
		if !state.Shown(before) || before.Place >= t.Place {
			continue
		}
		session, partition, inherited := state.Origin(before, reading.Position.Partition)
		if !inherited {
			before = before.Until(st.Position.Seq, before.Final != 0 && before.Final < st.Position.Seq)
		}
		out = append(out, s.cfg.IDs.OfTurn(session, partition, before)...)
	}
	own, err := s.ownInput(ctx, st, t, reading.Position.Partition)
	return append(out, own...), err
}

// ownInput returns the items of a step's turn up to its answer.
func (s *Service) ownInput(
	ctx context.Context, st step, t *session.Turn, partition int,
) ([]message.Item, error) {
	if at, answered := st.answerAt(t); answered && t.PrunedAt() > at.Seq {
		left, err := s.askedOf(ctx, t, at)
		return s.cfg.IDs.OfMessages(st.session, items.Address{Position: at}, left), err
	}
	own := s.cfg.IDs.OfTurn(st.session, partition, t)
	if _, answered := st.answerAt(t); !answered {
		return own, nil
	}
	answer, err := s.recorded(ctx, st, t)
	if err != nil {
		return nil, err
	}
	if len(answer.Output) > 0 {
		if n := indexOf(own, answer.Output[0].ID()); n >= 0 {
			own = own[:n]
		}
	}
	return own, nil
}
