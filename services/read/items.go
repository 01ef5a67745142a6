package read

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// Items reads sessions as items.
type Items struct {
	Lookup services.TurnLookup
	IDs    items.Minter
	// SessionAt returns the session of the event at a position, or "" if there is none.
	SessionAt func(ctx context.Context, at events.Position) (string, error)
}

var _ services.ItemReader = Items{}

// ItemPage implements services.ItemReader. What a page follows may be an item with an id of its client's own, which
// does not say where it is: if it is not among the newest, the whole session is read.
func (r Items) ItemPage(ctx context.Context, id string, p services.Paging) (services.ItemPage, error) {
	ask := services.BesideAsk{Back: !p.Asc, Messages: p.Limit + 1}
	if at, looks := items.Locate(p.After); looks {
		ask.At, ask.Answer, ask.Message = at.Position, at.Answer, at.Message
	} else if p.After != "" {
		ask.Back, ask.Messages = true, 2*ask.Messages
	}
	turns, there, err := r.beside(ctx, id, ask)
	if err != nil {
		return services.ItemPage{}, err
	}
	page := r.cut(begun(turns.Turns, p), p)
	if !there || !page.Found || !page.More && turns.More && (!p.Asc || !ask.Back) {
		if turns, err = r.turns(ctx, id); err != nil {
			return services.ItemPage{}, err
		}
		if page = r.cut(begun(turns.Turns, p), p); !page.Found {
			page = r.cut(inOrder(turns.Turns, p), p)
		}
	}
	page.Position = turns.Position
	return page, nil
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

// turns returns all turns of a session that are listed.
func (r Items) turns(ctx context.Context, id string) (services.TurnsBeside, error) {
	turns, found, err := r.beside(ctx, id, services.BesideAsk{Messages: math.MaxInt})
	if err == nil && !found {
		err = decide.ErrSessionNotFound
	}
	return turns, err
}

// beside returns turns of a session that stand side by side. It reports false if there are none at the place asked for.
func (r Items) beside(
	ctx context.Context, id string, ask services.BesideAsk,
) (found services.TurnsBeside, ok bool, err error) {
	ask.SessionID = id
	return r.Lookup.TurnsBeside(ctx, ask)
}

// cut cuts a page out of turns in its order. It makes no more items than it has to.
func (r Items) cut(turns []services.StandingTurn, p services.Paging) (page services.ItemPage) {
	page.Found = p.After == ""
	for _, t := range turns {
		from := ""
		if !page.Found {
			from = p.After
		}
		for i := range r.walk(t, from, items.Way{Back: !p.Asc}) {
			switch {
			case !page.Found:
				page.Found = i.ID() == p.After
			case len(page.Items) == p.Limit:
				page.More = true
				return page
			default:
				page.Items = append(page.Items, i)
			}
		}
	}
	return page
}

// walk yields the items of a turn. If from is the id of one of them, the walk begins with its message, as far as the id
// tells.
func (r Items) walk(t services.StandingTurn, from string, way items.Way) iter.Seq[message.Item] {
	way.Skipped = t.Skipped
	if r.IDs.Made(from, t.SessionID) {
		way.From, _ = items.Locate(from)
	}
	return r.IDs.Walk(t.SessionID, t.Partition, t.Turn, way)
}

// mostNewest is how many messages are looked through for an item before all are.
const mostNewest = 20

// FindItem implements services.ItemReader. It looks at the place in the id first, then among the newest turns, and then
// everywhere.
func (r Items) FindItem(ctx context.Context, id, item string) (services.FoundItem, error) {
	asks := []services.BesideAsk{{Back: true, Messages: mostNewest}, {Messages: math.MaxInt}}
	if at, looks := items.Locate(item); looks {
		there := services.BesideAsk{At: at.Position, Answer: at.Answer, Message: at.Message, Messages: 1}
		asks = slices.Insert(asks, 0, there)
	}
	for _, ask := range asks {
		turns, _, err := r.beside(ctx, id, ask)
		if err != nil {
			return services.FoundItem{}, err
		}
		for _, t := range turns.Turns {
			for i := range r.walk(t, item, items.Way{}) {
				if i.ID() == item {
					return services.FoundItem{Item: i, Turn: t, Position: turns.Position}, nil
				}
			}
		}
	}
	return services.FoundItem{}, services.ErrNoItem
}

// References implements services.ItemReader.
func (r Items) References(
	session func() (string, error), reach func(ctx context.Context, sessionID string) error,
) services.ItemReferences {
	return &references{Items: r, session: session, reach: reach, others: map[string]bool{}}
}

// references finds the items that a request refers to. It reads the request's session once, and only if an id is asked
// for.
type references struct {
	Items

	session func() (string, error)
	reach   func(ctx context.Context, sessionID string) error
	read    bool
	own     []message.Item
	// others are the sessions besides this one that were looked into.
	others map[string]bool
}

func (k *references) listed(ctx context.Context) ([]message.Item, error) {
	if k.read {
		return k.own, nil
	}
	id, err := k.session()
	if err != nil {
		return nil, err
	}
	if id != "" {
		turns, err := k.turns(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, t := range turns.Turns {
			k.own = append(k.own, k.IDs.OfTurn(t.SessionID, t.Partition, t.Turn)...)
		}
	}
	k.read = true
	return k.own, nil
}

// mostOthers bounds the sessions besides its own that the items of a request refer to. To look for an item that was
// deleted is to read a session whole.
const mostOthers = 20

// Item implements services.ItemReferences.
func (k *references) Item(ctx context.Context, id string) (message.Item, error) {
	own, err := k.listed(ctx)
	if err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(own, func(i message.Item) bool { return i.ID() == id }); n >= 0 {
		return items.Unnamed(own[n]), nil
	}
	at, looks := items.Locate(id)
	if !looks {
		return nil, services.ErrNoItem
	}
	session, err := k.SessionAt(ctx, at.Position)
	if err != nil {
		return nil, err
	}
	if session == "" || !k.IDs.Made(id, session) {
		return nil, services.ErrNoItem
	}
	var found services.FoundItem
	if err = k.reach(ctx, session); err == nil {
		if k.others[session] = true; len(k.others) > mostOthers {
			return nil, services.ErrManySessions
		}
		found, err = k.FindItem(ctx, session, id)
	}
	if errors.Is(err, services.ErrNoSession) || errors.Is(err, decide.ErrSessionErased) {
		err = services.ErrNoItem
	}
	if err != nil {
		return nil, err
	}
	return items.Unnamed(found.Item), nil
}

// Keep implements services.ItemReferences.
func (k *references) Keep(ctx context.Context, given []message.Item) error {
	taken := map[string]bool{}
	for n, i := range given {
		switch id := i.ID(); {
		case id == "" && i["id"] != nil:
			given[n] = i.WithoutID()
		case id == "":
		case !items.KeepsID(i):
			given[n] = items.Unnamed(i)
		default:
			own, err := k.listed(ctx)
			if err != nil {
				return err
			}
			if taken[id] || slices.ContainsFunc(own, func(i message.Item) bool { return i.ID() == id }) {
				return services.ErrItemTaken
			}
			taken[id] = true
		}
	}
	return nil
}
