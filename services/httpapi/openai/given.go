package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/turnledger/turnledger/events/decide"
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
	ids := s.cfg.Conversations.References(func() (string, error) { return id, nil }, s.cfg.Reach)
	refer := func(id, param string) (message.Item, error) {
		i, err := ids.Item(ctx, id)
		return i, ofReference(err, param)
	}
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
			if i, err = refer(i.ID(), param); err != nil {
				return nil, err
			}
		}
		if i, err = items.Known(i.Normal(), func(id string) (message.Item, error) {
			there, err := refer(id, param)
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
	if err = ids.Keep(ctx, out); errors.Is(err, services.ErrItemTaken) {
		err = bad(itemsMember, codeTaken, "The conversation has an item of an id in items already.")
	}
	return out, err
}

// checked refuses an item that can't be given back in the form that clients expect.
func checked(i message.Item, param string) error {
	if wrong := i.Check(); wrong != nil {
		name := param + "." + wrong.Member
		return bad(name, wrong.Code(), name+" "+wrong.Error()+".")
	}
	return nil
}

// referencesOf returns what finds the items that a request for a response refers to, and what admits the request, once:
// before any item is looked for.
func (s *surface) referencesOf(ctx context.Context) (refer respond.Refer, admit func(*respond.Request) error) {
	admitted := false
	admit = func(r *respond.Request) (err error) {
		if !admitted {
			err = s.admit(ctx, r)
			admitted = err == nil
		}
		return err
	}
	var ids services.ItemReferences
	return func(r *respond.Request, id, param string, beside []string) (message.Item, error) {
		if err := admit(r); err != nil {
			return nil, err
		}
		if ids == nil {
			session := func() (string, error) { return s.historyOf(ctx, r, beside) }
			ids = s.cfg.Conversations.References(session, s.cfg.Reach)
		}
		i, err := ids.Item(ctx, id)
		if err = ofReference(err, param); r.Conversation != "" && errors.Is(err, decide.ErrSessionNotFound) {
			err = services.ErrNoConversation
		}
		return i, err
	}, admit
}

// historyOf returns the session that a request goes on with, or "". beside are the ids of its items: a model's own id
// says nothing of its session, but others beside it do.
func (s *surface) historyOf(ctx context.Context, r *respond.Request, beside []string) (string, error) {
	switch {
	case r.Conversation != "":
		return r.Conversation, nil
	case r.Previous != "":
		session, err := s.cfg.Responses.SessionOf(ctx, r.Previous, s.who(ctx))
		if errors.Is(err, services.ErrNoResponse) {
			err = services.ErrNoPrevious
		}
		return session, err
	}
	session, err := s.cfg.Responses.SessionOfItems(ctx, beside, s.who(ctx))
	if session != "" && err == nil {
		if _, err = s.cfg.Conversations.ItemPage(ctx, session, services.Paging{}); isMissing(err) {
			return "", nil
		}
	}
	return session, err
}

// ofReference returns the problem of an item that the member of a name refers to.
func ofReference(err error, param string) error {
	switch {
	case errors.Is(err, services.ErrNoItem):
		return missing(param+".id", "", param+".id names no item.")
	case errors.Is(err, services.ErrManySessions):
		return bad(param+".id", codeValue, "The items refer to those of more than 20 other conversations.")
	}
	return err
}

// isMissing reports whether an error says that there is no such conversation, or not any more.
func isMissing(err error) bool {
	return err != nil && forms[problemOf(err).Class].status == http.StatusNotFound
}

// unless returns none if an error says that there is nothing, and the error if nobody could tell.
func unless(err error, none *problems.Problem) error {
	if isMissing(err) {
		return none
	}
	return err
}
