package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// itemID returns the id of an item.
func itemID(i message.Item) string { return i.ID() }

func (s *surface) createItems(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	id := r.PathValue("conversation_id")
	noteSession(ctx, id)
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	body, raw, err := s.body(r)
	if err != nil {
		return nil, err
	}
	done, err := s.addItems(ctx, id, body, s.callOf(ctx, r, raw))
	if err != nil {
		return nil, err
	}
	notePosition(ctx, done.Position)
	out := s.itemsOf(done)
	wire.CallOf(ctx).SetAttribute("items", len(out))
	return listOf(respond.Shown(out, with), itemID), nil
}

// addItems records the items of a body. A call that was recorded before has its first answer, whatever the conversation
// holds by now.
func (s *surface) addItems(
	ctx context.Context, id string, body members, call services.Call,
) (services.AddedMessages, error) {
	given, err := s.given(ctx, body, id)
	if err != nil {
		if !named(call) {
			return services.AddedMessages{}, err
		}
		call.Only = true // it may name itself: its items have their ids already
		done, failed := s.cfg.Messages.AddMessages(ctx, decide.AddMessages{SessionID: id, Now: s.cfg.Now()}, call)
		if failed != nil {
			return done, err
		}
		return done, nil
	}
	return s.cfg.Items.AddItems(ctx, id, requestID(call), given, call)
}

// requestID returns the id of the requests that a call makes. A call with a key makes the same for ever.
func requestID(call services.Call) string {
	if call.Key != "" {
		return call.Key
	}
	return uuid.NewString()
}

// itemsOf returns the items of added messages, with their ids.
func (s *surface) itemsOf(done services.AddedMessages) (out []message.Item) {
	for _, m := range done.Messages {
		at := items.Address{Position: m.First, Answer: m.Answer, Message: m.Message}
		out = append(out, s.ids.OfMessages(done.SessionID, at, []json.RawMessage{m.JSON})...)
	}
	return out
}

func (s *surface) listItems(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	p, err := pagingOf(r)
	if err != nil {
		return nil, err
	}
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	page, err := s.cfg.Conversations.ItemPage(ctx, r.PathValue("conversation_id"), p)
	return shownPage(ctx, page, with, err)
}

// shownPage returns a page of items as it is shown.
func shownPage(ctx context.Context, page services.ItemPage, with message.Includes, err error) (any, error) {
	if err == nil && !page.Found {
		err = noAfter()
	}
	if err != nil {
		return nil, err
	}
	notePosition(ctx, page.Position)
	return listOf(respond.Shown(page.Items, with), itemID).thenMore(page.More), nil
}

func (s *surface) getItem(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	found, err := s.item(ctx, r.PathValue("conversation_id"), r.PathValue("item_id"))
	if err != nil {
		return nil, err
	}
	return found.Item.Shown(with), nil
}

// item finds an item of a conversation.
func (s *surface) item(ctx context.Context, conversationID, id string) (services.FoundItem, error) {
	found, err := s.cfg.Conversations.FindItem(ctx, conversationID, id)
	if errors.Is(err, services.ErrNoItem) {
		err = noItem()
	}
	notePosition(ctx, found.Position)
	return found, err
}

func noItem() error {
	return missing("item_id", "", "The conversation has no item of the id in the path.")
}

// deleteItem takes an item out of its turn, and out of the log. If it was the only one, the turn is redacted.
func (s *surface) deleteItem(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	id, gone, call := r.PathValue("conversation_id"), r.PathValue("item_id"), s.callOf(ctx, r, nil)
	found, err := s.item(ctx, id, gone)
	if err == nil {
		err = s.prune(ctx, h, decide.Prune{
			SessionID: id, TurnID: found.Turn.ID, Call: call.Name(), Keep: func(m session.Message) json.RawMessage {
				return s.kept(found.Turn.SessionID, found.Turn.Partition, m, gone)
			},
		})
		if isGone(err) {
			err = noItem()
		}
	}
	if isMissing(err) {
		err = s.deletedBefore(ctx, h, id, call, err)
	}
	if err != nil {
		return nil, err
	}
	return s.conversation(ctx, id)
}

// deletedBefore answers a call that repeats an earlier one, which has taken something out of a session: the answer's
// header names the receipt of that call. If there was none, it fails with none.
func (s *surface) deletedBefore(
	ctx context.Context, h http.Header, sessionID string, call services.Call, none error,
) error {
	if !named(call) {
		return none
	}
	call.Only = true
	done, err := s.cfg.Messages.AddMessages(ctx, decide.AddMessages{SessionID: sessionID, Now: s.cfg.Now()}, call)
	switch {
	case err == nil:
		h.Set(receiptHeader, done.Position.String())
	case isNotRepeated(err):
		return none
	}
	return err
}

// named reports whether a call says that it may repeat an earlier one.
func named(call services.Call) bool { return call.Key != "" || call.Repeats }

// isNotRepeated reports whether an error says that a call repeats none, or none in a session that there is.
func isNotRepeated(err error) bool {
	return errors.Is(err, services.ErrNotRepeated) || errors.Is(err, decide.ErrSessionNotFound) ||
		errors.Is(err, decide.ErrSessionErased) || errors.Is(err, decide.ErrInvalid)
}

// prune takes messages out of a turn. The answer's header names the receipt.
func (s *surface) prune(ctx context.Context, h http.Header, c decide.Prune) error {
	done, err := s.cfg.Turns.PruneTurn(ctx, c)
	if err == nil {
		h.Set(receiptHeader, done.Position.String())
	}
	return err
}

// kept returns a message of a turn without an item, as it is to stay.
func (s *surface) kept(sessionID string, partition int, m session.Message, gone string) json.RawMessage {
	return s.ids.Kept(sessionID, items.Address{
		Position: events.Position{Partition: partition, Seq: m.Begun},
		Answer:   m.Half == events.HalfAnswer, Message: m.Number,
	}, m.Raw, gone)
}

// isGone reports whether another call has taken out first what this one takes out.
func isGone(err error) bool {
	return errors.Is(err, decide.ErrMessageNotFound) || errors.Is(err, decide.ErrTurnRedacted)
}
