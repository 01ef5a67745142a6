package respond

import (
	"context"
	"errors"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// mostLookedUp bounds the ids of an input that are looked up to find the session that it repeats.
const mostLookedUp = 8

// errNotReplayed: an input does not begin with a history that is here.
var errNotReplayed = errors.New("the input repeats no history")

// replay records an input that begins with a history which a client sends again with the ids that it has here: all
// turns of a session from the first on. The Agents SDK does so with a session of its own. What is sent again is shared
// with the session and not copied, so that it stands once, and a deletion reaches it.
func (s *Service) replay(
	ctx context.Context, a Ask, add conversation.AddMessages,
) (services.AddedMessages, error) {
	session, err := s.SessionOfItems(ctx, a.IDs, a.Caller)
	if err == nil && session == "" {
		err = errNotReplayed
	}
	if err != nil {
		return services.AddedMessages{}, err
	}
	if done, err := s.repeated(ctx, session, a); !errors.Is(err, services.ErrNotRepeated) {
		return done, err
	}
	h, err := s.replayed(ctx, a, session)
	if err != nil {
		return services.AddedMessages{}, err
	}
	return s.goOn(ctx, a, add, h)
}

// replayed returns the history of a session that an input begins with.
func (s *Service) replayed(ctx context.Context, a Ask, session string) (*history, error) {
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: session, AllTurns: true})
	if err != nil {
		return nil, err
	}
	last, n := s.sharedTurns(a, reading)
	if last == nil || reading.State.Erased != 0 {
		return nil, errNotReplayed
	}
	_, partition, inherited := reading.State.Origin(last, reading.Position.Partition)
	h := &history{
		session: reading.State.SessionID, kind: reading.State.Description().Kind, turn: last.ID, inherited: inherited,
		end: events.Position{Partition: partition, Seq: last.Last()}, rest: a.Input[n:],
	}
	if inherited {
		h.end = reading.Position
	}
	return h, nil
}

// SessionOfItems returns the session of the last of some ids that is that of an item here which the caller may reach;
// "" if there is none among the last that look so.
func (s *Service) SessionOfItems(ctx context.Context, ids []string, who Caller) (string, error) {
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
		switch err := who.may(ctx, e.SessionID, errNotReplayed); {
		case err == nil:
			return e.SessionID, nil
		case !errors.Is(err, errNotReplayed):
			return "", err
		}
	}
	return "", nil
}

// sharedTurns returns the last of the turns that the input begins with, and how many items they are. At least one of
// these must have come with its id, and at least one item must follow.
func (s *Service) sharedTurns(a Ask, r services.Reading) (last *conversation.Turn, count int) {
	n, named := 0, false
	for _, t := range r.State.Turns {
		if !r.State.Shown(t) {
			continue
		}
		session, partition, _ := r.State.Origin(t, r.Position.Partition)
		for _, own := range s.cfg.IDs.OfTurn(session, partition, t) {
			if n == len(a.Input) || !repeats(a.Input[n], a.IDs[n], own) {
				return last, count
			}
			named = named || a.IDs[n] == own.ID()
			n++
		}
		if t.Status == conversation.Finalized && named && n < len(a.Input) {
			last, count = t, n
		}
	}
	return last, count
}

// repeats reports whether an item of the input, which came with an id or without, is one that is here.
func repeats(given items.Item, id string, own items.Item) bool {
	if _, ours := items.Locate(id); ours && id != own.ID() {
		return false
	}
	return given.Repeats(own)
}
