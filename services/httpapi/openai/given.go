package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/problems"
)

const itemsMember = "items"

// Bounds of the items of one call: OpenAI's, and ours. An atomic append holds 1,000 events, and an item makes at most
// one.
const officialItems, mostItems = 20, 500

// given returns the items of a body in their normal form. What they refer to stands in their place. id is the
// conversation that they are for; "" for one that there is not yet, and that may begin without items.
func (s *surface) given(ctx context.Context, body members, id string) ([]message.Item, error) {
	required := id != ""
	if !body.has(itemsMember) {
		if required {
			return nil, bad(itemsMember, codeMissing, "items is required.")
		}
		return nil, nil
	}
	var raws []json.RawMessage
	if json.Unmarshal(body[itemsMember], &raws) != nil {
		return nil, bad(itemsMember, codeType, "items must be a list.")
	}
	most := mostItems
	if s.cfg.Strict {
		most = officialItems
	}
	switch {
	case len(raws) == 0 && required:
		return nil, bad(itemsMember, codeEmptyArray, "items must hold at least one item.")
	case len(raws) > most:
		return nil, bad(itemsMember, codeAboveMaximum, fmt.Sprintf("items holds more than %d items.", most))
	}
	return s.resolved(ctx, id, raws)
}

// resolved parses items, and puts what they refer to in their place. An item that is not found is told before what is
// wrong with the others.
func (s *surface) resolved(ctx context.Context, id string, raws []json.RawMessage) (out []message.Item, err error) {
	var wrong error
	ids := s.knownIn(ctx, id)
	for n, raw := range raws {
		param := fmt.Sprintf("%s[%d]", itemsMember, n)
		i, err := message.ParseItem(raw)
		if err == nil {
			err = checked(i, param)
		} else {
			err = bad(param, codeType, param+" "+err.Error()+".")
		}
		switch {
		case err != nil:
			if wrong == nil {
				wrong = err
			}
			continue
		case !i.Listed():
			continue
		case i.Refers():
			if i, err = ids.referred(i.ID(), param); err != nil {
				return nil, err
			}
		}
		if i, err = items.Known(i.Normal(), func(id string) (message.Item, error) {
			there, err := ids.referred(id, param)
			if respond.Absent(err) {
				err = nil
			}
			return there, err
		}); err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	if wrong != nil {
		return nil, wrong
	}
	return out, ids.take(out)
}

// checked refuses an item that can't be given back in the form that clients expect.
func checked(i message.Item, param string) error {
	if wrong := i.Check(); wrong != nil {
		name := param + "." + wrong.Member
		return bad(name, wrong.Code(), name+" "+wrong.Error()+".")
	}
	return nil
}

// known finds items by their ids. It reads the conversation once, and only if an id is asked for.
type known struct {
	*surface

	ctx          context.Context //nolint:containedctx // of one call
	conversation string
	all          []message.Item
	read         bool
	searched     bool // for the conversation that the ids are of
	admitted     bool
	// others are the conversations besides this one that were looked into.
	others map[string]bool
}

func (s *surface) knownIn(ctx context.Context, conversation string) *known {
	return &known{surface: s, ctx: ctx, conversation: conversation, others: map[string]bool{}}
}

// admit lets the request that the items are of in, once.
func (k *known) admit(r *respond.Request) error {
	if k.admitted {
		return nil
	}
	err := k.surface.admit(k.ctx, r)
	k.admitted = err == nil
	return err
}

func (k *known) listed() ([]message.Item, error) {
	if k.read || k.conversation == "" {
		return k.all, nil
	}
	var err error
	k.all, err = k.surface.listed(k.ctx, k.conversation)
	k.read = err == nil
	return k.all, err
}

// referredBy returns the item that a request for a response refers to.
func (k *known) referredBy(r *respond.Request, id, param string, beside []string) (message.Item, error) {
	if err := k.admit(r); err != nil {
		return nil, err
	}
	switch {
	case k.conversation != "":
	case r.Conversation != "":
		k.conversation = r.Conversation
		if _, err := k.listed(); isMissing(err) {
			return nil, services.ErrNoConversation
		}
	case r.Previous != "":
		session, err := k.cfg.Responses.SessionOf(k.ctx, r.Previous, k.who(k.ctx))
		if errors.Is(err, services.ErrNoResponse) {
			err = services.ErrNoPrevious
		}
		if err != nil {
			return nil, err
		}
		k.conversation = session
	case !k.searched: // a model's own id says nothing of its session, but others beside it do
		session, err := k.cfg.Responses.SessionOfItems(k.ctx, beside, k.who(k.ctx))
		if err != nil {
			return nil, err
		}
		k.conversation, k.searched = session, true
		if _, err := k.listed(); isMissing(err) {
			k.conversation = ""
		}
	}
	return k.referred(id, param)
}

// isMissing reports whether an error says that there is no such conversation, or not any more.
func isMissing(err error) bool {
	return err != nil && forms[problemOf(err).Class].status == http.StatusNotFound
}

// referred returns the item of an id in this conversation, or in another one of the caller's.
func (k *known) referred(id, param string) (message.Item, error) {
	none := missing(param+".id", "", param+".id names no item.")
	own, err := k.listed()
	if err != nil {
		return nil, err
	}
	if n := indexOf(own, id); n >= 0 {
		return items.Unnamed(own[n]), nil
	}
	at, looks := items.Locate(id)
	if !looks {
		return nil, none
	}
	session, err := k.cfg.SessionAt(k.ctx, at.Position)
	if err != nil {
		return nil, err
	}
	if session == "" || !k.ids.Made(id, session) {
		return nil, none
	}
	if err := k.cfg.Reach(k.ctx, session); err != nil {
		return nil, unless(err, none)
	}
	if k.others[session] = true; len(k.others) > mostOthers {
		return nil, bad(param+".id", codeValue,
			fmt.Sprintf("The items refer to those of more than %d other conversations.", mostOthers))
	}
	there, err := k.item(k.ctx, session, id)
	if err != nil {
		return nil, unless(err, none)
	}
	return items.Unnamed(there), nil
}

// mostOthers bounds the conversations besides its own that the items of a request refer to. To look for an item that
// was deleted is to read a conversation whole.
const mostOthers = 20

// unless returns none if an error says that there is nothing, and the error if nobody could tell.
func unless(err error, none *problems.Problem) error {
	if isMissing(err) {
		return none
	}
	return err
}

func indexOf(all []message.Item, id string) int {
	return slices.IndexFunc(all, func(i message.Item) bool { return i.ID() == id })
}

// take lets the items keep the ids that they bring, if they may. An id that the conversation has is refused.
func (k *known) take(given []message.Item) error {
	taken := map[string]bool{}
	for n, i := range given {
		switch {
		case i.ID() == "":
			if i["id"] != nil {
				given[n] = i.WithoutID()
			}
			continue
		case !items.KeepsID(i):
			given[n] = items.Unnamed(i)
			continue
		}
		own, err := k.listed()
		if err != nil {
			return err
		}
		if taken[i.ID()] || indexOf(own, i.ID()) >= 0 {
			return bad(itemsMember, codeTaken, "The conversation has an item of an id in items already.")
		}
		taken[i.ID()] = true
	}
	return nil
}
